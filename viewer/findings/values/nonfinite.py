"""The finding names the first launch that wrote a NaN although none of its inputs holds one; all of its inputs were
read. If one of its inputs holds an infinity, that infinity caused the NaN. A NaN among the inputs of a graph is traced
back through graphs, backward passes and steps to an earlier tensor of the same log with the same statistics; if there
is none, the NaN came from outside of the recorded code. If an input was not read, or was only sampled, or if the launch
writes an input of the graph whose earlier content was not read, the launch is where the NaN was first seen, and its
origin is unknown; if the same log has an earlier NaN, a later one of this sort counts as its effect, and there is no
finding if the launch reads memory that nothing wrote (uninitialised_read) or another dtype than it has (misread_dtype).
An infinity that caused no NaN is reported only if all inputs that were read are finite; -inf, in addition, only if the
launch has no masking operator (where, masked_fill, full, triu, ...) or its kernel does not contain -inf. The +inf of a
single element that leaves the forward graph of a training, as a loss does, is reported also if inputs hold -inf. A NaN
or infinite constant that the source of a kernel with finite inputs computes with, or a division by the constant 0, is
reported as the cause, as are memory that nothing wrote, for which such code has NaN, and labels that a loss ignores
altogether. The finding is critical if the call of the graph leaves the value behind, and a warning otherwise, or if the
infinity may be meant: that of a logarithm or a division, a constant, and -inf whose origin is unknown. It is
information only if a NaN entered with an input, the launches that read it test for NaN (isnan, nan_to_num, nansum,
...), and no launch of the log wrote one. Launches of one log that compute the same operators of the same lines of the
model share a finding. The backward of an operator that first makes NaN in a step in which the operator made it is a
part of the operator's finding, also if both have it from the same constant. The infinity of an operator whose backward
makes NaN in the same steps is a part of the NaN's finding, as is one that a launch has from the same constant as a NaN.
Likewise, a NaN that entered after an infinity had left a graph in the same step is a part of the infinity's finding,
which is then critical, and an overflow in a call in which another overflow becomes NaN is a part of that one's finding.
Where values grew from step to step until they became NaN or infinite, the finding is of the kind exploding_values
instead."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from typing import Any

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values import describe as text
from stepscope.viewer.findings.values import nonfinite_titles as titles
from stepscope.viewer.findings.values.changed_outside import growing_logs
from stepscope.viewer.findings.values.climbs import is_end_of_climb
from stepscope.viewer.findings.values.nonfinite_chain import chain
from stepscope.viewer.findings.values.operations import operation, operators, place, source_line
from stepscope.viewer.findings.values.origins import Case, Hop, How, Origin, Tracer
from stepscope.viewer.findings.values.same_cause import is_its_backward, is_of_one_constant
from stepscope.viewer.graphs.queries.argument_facts import uninitialised_reads
from stepscope.viewer.graphs.queries.misread_dtypes import misreading_sites
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.nonfinite import (
    Event,
    infinite_scalars,
    infinite_sites,
    infinity_made,
    launch_place,
    nan_came_in,
    nan_made,
    value_row,
)
from stepscope.viewer.values.queries.values import has_values, values_of
from stepscope.viewer.values.rows import ValueRow

SUMMARY = "NaN or an infinity appeared"
TITLE_IS_MEASURED = True

MOST_FINDINGS = 5
"""Maximum number of findings per log."""
_MOST_EVENTS = 100
"""Launch sites of a log whose infinities are followed, and whose NaN are looked at."""
_MOST_FOLLOWED = 30
"""Events of a log that are followed to the origin of a NaN."""
_MOST_FOLLOWED_IN_ALL = 200
"""The same for all logs, besides those of logs without a case."""
_MOST_IN_ALL = 2000
"""Events of all logs that are followed, besides the first one of each log."""
_MOST_EXPLAINED = 12
_INTENDED = ("log", "div", "reciprocal", "rsqrt")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per origin, up to the maximum per log, without those in which growing values end."""
    return evidence.trace.once(_found)[0]


def ends_of_climbs(trace: Trace) -> dict[int, list[Finding]]:
    """Return by log the findings in which values end that grew from step to step (exploding_values)."""
    return trace.once(_found)[1]


def _found(trace: Trace) -> tuple[list[Timed], dict[int, list[Finding]]]:
    found: list[Timed] = []
    ends: dict[int, list[Finding]] = {}
    if not has_values(trace):
        return found, ends
    caused, misreading = growing_logs(trace), misreading_sites(trace)
    tracer = Tracer(trace)
    cases = _Cases(tracer)
    cases.follow(nan_made(trace, _MOST_EVENTS), nan_came_in(trace, _MOST_EVENTS))
    masks = tracer.masks
    masks.read(infinite_sites(trace))  # before the limits, so that masks hide no infinity
    cases.infinities(infinity_made(trace, _MOST_EVENTS, masks.leave_memory, positive=True))
    cases.infinities(infinity_made(trace, _MOST_EVENTS, masks.leave_memory | masks.make_minus))
    cases.losses(infinite_scalars(trace, _MOST_EVENTS))
    unwritten = {read.site for read in uninitialised_reads(trace) if not read.is_empty}
    for log, of_log in cases.by_log().items():
        own_cause = [case for case in of_log if case.how != "not known" or case.hop.flow.site not in unwritten]
        joined = _joined(tracer, own_cause)
        joined = [case for case in joined if not _sites(case) & misreading]
        own = [case for case in joined if log in caused or not is_end_of_climb(tracer, case)]
        found += [_finding(trace, tracer, case, len(own) - MOST_FINDINGS) for case in own[:MOST_FINDINGS]]
        last = [case for case in joined if not any(case is one for one in own)]
        last.sort(key=lambda case: case.hop.flow.launch)
        ends[log] = [_finding(trace, tracer, case, 0)[1] for case in last[:MOST_FINDINGS]]
    return found, ends


def _sites(case: Case) -> set[int]:
    """Return the launch sites that made the NaN or the infinity, and the infinity that became NaN."""
    first = case.grown_from.first if case.grown_from is not None else case.hop
    return {case.hop.flow.site, first.flow.site}


def _joined(tracer: Tracer, cases: Sequence[Case]) -> list[Case]:
    """Return the cases of one log, with those that have the same cause and effect joined to the first of them."""
    joined: dict[Hashable, Case] = {}
    for case in cases:
        same = [one for one in joined.values() if one.is_nan == case.is_nan]
        forward = next((one for one in same if is_its_backward(tracer, case, one)), None)
        first = forward or joined.setdefault(_cause_and_effect(tracer, case), case)
        if first is not case:
            first.add(case)
    return _without_effects(tracer, list(joined.values()))


def _without_effects(tracer: Tracer, cases: list[Case]) -> list[Case]:
    """Return the cases without those that are told with another one: a NaN that came in after an infinity had left a
    graph in the same step, an overflow in a call in which another overflow becomes NaN, and the infinity of an
    operator whose backward makes NaN."""
    told: list[Case] = []
    for case in cases:
        launch, step = case.hop.flow.launch, case.hop.flow.step
        left = [one for one in cases if not one.is_nan and one.how == "made" and one.leaves and step in one.steps]
        before = [one for one in left if one.hop.flow.launch < launch]
        if case.is_nan and case.how == "came in" and before:
            max(before, key=lambda one: one.hop.flow.launch).came_back = case
            told.append(case)
        back = next((one for one in cases if one.is_nan and is_its_backward(tracer, one, case)), None)
        if not case.is_nan and back is not None:
            back.forward = case.hop
            told.append(case)
        elif not case.is_nan and any(one.is_nan and is_of_one_constant(tracer, one, case) for one in cases):
            told.append(case)
        elif not case.is_nan and titles.is_overflow(tracer, case.hop):
            call = case.hop.flow.call
            nan = next((one for one in cases if one.grown_from and call == one.hop.flow.call), None)
            if nan is not None and nan.grown_from is not None and titles.is_overflow(tracer, nan.grown_from.first):
                nan.overflows.append(case.hop)
                told.append(case)
    return [case for case in cases if not any(case is one for one in told)]


def _cause_and_effect(tracer: Tracer, case: Case) -> Hashable:
    hops = [*(case.grown_from.hops[:1] if case.grown_from else []), case.hop]
    sites = [tracer.site(hop.flow.site) for hop in hops]
    if case.how == "came in" or any(source_line(site) is None for site in sites):
        return id(case)
    return case.is_nan, case.how, *((site.kernel, operation(site), place(source_line(site))) for site in sites)


class _Cases:
    """Origins by the key that distinguishes them."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.cases: dict[Any, Case] = {}
        self._of_log: defaultdict[int, list[Case]] = defaultdict(list)
        self._infinities: set[int] = set()
        """Launch sites whose infinity caused a NaN."""
        self._rows: dict[int, ValueRow] = {}
        self._followed: set[int] = set()
        """Rows that were traced, or could be, of all logs."""

    def by_log(self) -> dict[int, list[Case]]:
        """Return the cases of each log, those of NaN first."""
        return {
            log: sorted(cases, key=lambda case: (not case.is_nan, case.hop.row.value))
            for log, cases in sorted(self._of_log.items())
            if cases
        }

    def follow(self, made: list[Event], came_in: list[Event]) -> None:
        """Add the cases of NaN in order of time."""
        events = sorted([*made, *came_in], key=lambda event: event.value)
        writers = {event.value for event in made}
        followed = {event.value for event in self._read(events, _MOST_FOLLOWED, _MOST_FOLLOWED_IN_ALL)}
        for event in events:
            if event.value in followed or not self._of_log[event.log]:
                origin = self.tracer.origin(self._row(event), text.is_nan)
                self._add(origin, event, event.value in writers)

    def _add(self, origin: Origin, event: Event, is_made: bool) -> None:
        first = origin.first
        grown = self.tracer.grown_from(first.flow) if first.row.moment == "after" else None
        key = self._key(first, origin.how, grown)
        known = self.cases.get(key)
        if known is None and not origin.is_made and self._explains(event, first, text.is_nan):
            return
        if known is None:
            known = self._put(key, Case(first, origin.how, True, grown, event.launches, set(event.in_steps)))
            known.leaves = self.tracer.flows.leaves(first.flow.call, text.is_nan)
        elif is_made:
            known.launches += event.launches
            known.steps |= set(event.in_steps)
            known.leaves |= self.tracer.flows.leaves(first.flow.call, text.is_nan)
        if first.flow.call != origin.hops[-1].flow.call and any(hop.row.moment == "after" for hop in origin.hops):
            known.leaves = True
        if event.launch != known.hop.flow.launch:
            known.explains.append(event.launch)

    def _explains(self, event: Event, first: Hop, is_one: Callable[[ValueRow], bool]) -> bool:
        """Add the event to an earlier case of the log, if there is one: it may have been in an optimizer in between."""
        earlier = self._of_log[event.log]
        if not earlier:
            return False
        if event.launch != earlier[0].hop.flow.launch:
            earlier[0].explains.append(event.launch)
        earlier[0].leaves |= self.tracer.flows.leaves(first.flow.call, is_one)
        return True

    def _key(self, first: Hop, how: How, grown: Origin | None) -> tuple[Any, ...]:
        log = first.flow.log
        if grown is not None and grown.how != "came in":
            self._infinities.add(grown.first.flow.site)
            return log, "infinity", grown.first.flow.site
        written = first.row.moment == "after"
        return (log, how, first.flow.site) if written else (log, how, first.flow.site, first.argument.argument)

    def _put(self, key: tuple[Any, ...], case: Case) -> Case:
        self.cases[key] = case
        self._of_log[case.hop.flow.log].append(case)
        return case

    def _read(self, events: Sequence[Event], most: int, most_in_all: int) -> list[Event]:
        """Read the first event of each log, and further ones up to so many of one log and of all, and return them in
        order of time."""
        of_log: Counter[int] = Counter()
        turns: list[tuple[int, int, int, Event]] = []
        for event in events:
            of_log[event.log] += 1
            turns.append((of_log[event.log], event.value, len(turns), event))
        turns = [one for at, one in enumerate(sorted(turns)) if one[0] == 1 or (one[0] <= most and at < most_in_all)]
        chosen = sorted((event for *_, event in turns), key=lambda event: event.value)
        self._rows = values_of(self.tracer.trace, [event.value for event in chosen])
        self.tracer.read_sites(event.site for event in chosen)
        self._followed.update(self._rows)
        return chosen

    def _row(self, event: Event) -> ValueRow:
        return self._rows.get(event.value) or value_row(self.tracer.trace, event.value)

    def _is_new(self, event: Event) -> bool:
        return event.site not in self._infinities and (event.log, "only infinity", event.site) not in self.cases

    def infinities(self, made: list[Event]) -> None:
        """Add the cases of infinities that caused no NaN."""
        new = [event for event in made if self._is_new(event) and event.value not in self._followed]
        for event in self._read(new, _MOST_EVENTS, _MOST_IN_ALL - len(self._followed)):
            origin = self.tracer.origin(self._row(event), text.is_infinite)
            if self.tracer.is_mask(origin) or origin.first.flow.site != event.site:
                continue
            if not origin.is_made and self._explains(event, origin.first, text.is_infinite):
                continue
            case = Case(origin.first, origin.how, False, None, event.launches, set(event.in_steps))
            case.leaves = self.tracer.flows.leaves(origin.first.flow.call, text.is_infinite)
            self._put((event.log, "only infinity", event.site), case)

    def losses(self, made: list[Event]) -> None:
        """Add the cases of single elements that leave a training's forward graph as +inf, also if a mask was read."""
        self.tracer.read_sites(event.site for event in made)
        new = [event for event in made if self._is_new(event) and self._is_forward(event.site)]
        for event in self._read(new, _MOST_EVENTS, _MOST_IN_ALL - len(self._followed)):
            first = self.tracer.origin(self._row(event), _is_infinite_scalar).first
            how: How = "not known" if self.tracer.unread(first.flow) else "made"
            case = Case(first, how, False, None, event.launches, set(event.in_steps))
            case.leaves = self.tracer.flows.leaves(first.flow.call, _is_infinite_scalar)
            if case.leaves:
                self._put((event.log, "only infinity", event.site), case)

    def _is_forward(self, site: int) -> bool:
        return self.tracer.phase(self.tracer.site(site).graph) == "forward"


def _is_infinite_scalar(row: ValueRow) -> bool:
    return row.numel == 1 and bool(row.positive_infinity)


def _finding(trace: Trace, tracer: Tracer, case: Case, more: int) -> Timed:
    flow, argument = case.hop.flow, case.hop.argument
    site, where = tracer.site(flow.site), launch_place(trace, flow.launch)
    written, is_used = case.hop.row.moment == "after", argument.argument >= 0
    name, left_out = text.label(argument), tracer.left_out(site)
    told = titles.Told(tracer, case)
    sentences = told.proof()
    proof: dict[str, Any] = {
        "step": flow.step,
        "launch": flow.launch,
        "launch_in_step": where.ordinal,
        "of": where.of,
        "origin": case.how,
        "in": text.read(flow.inputs) if written else [text.describe(name, case.hop.row)],
        "out": text.written(flow.outputs),
        "elements": _elements(case.hop),
        "not_read": [left_out] if left_out and written else [],
        "certain": case.how != "not known",
        "finite": "finite as far as was read",
        "chain": chain(trace, tracer, case),
        "leaves_the_graph": case.leaves,
        "launches": case.launches,
        "steps": len(case.steps),
        "in_steps": sorted(case.steps)[:_MOST_EXPLAINED],
        "explains_launches": list(dict.fromkeys(case.explains))[:_MOST_EXPLAINED],
        "fx_nodes": site.fx_nodes[:50],
        "aten": site.aten[:50],
        "stack": [asdict(line) for line in (site.stacks[0] if site.stacks else [])],
        "lines": text.lines(site),
        "inside": text.inside(site),
    }
    if proof["certain"]:
        del proof["finite"], proof["not_read"]
    if more > 0:
        proof["other_origins"] = more
    if any(titles.DIVIDES in line for line in sentences):
        proof["rounded_eps"] = told.rounded_eps()
    return where.time_unix_ns, Finding(
        kind="nonfinite",
        severity=_severity(tracer, case),
        title=told.title(),
        rule=rule_of(__doc__),
        evidence=proof,
        page=f"/steps/{flow.step}?log={flow.log}&launch={flow.launch}",
        rank=where.rank,
        step=flow.step,
        graph=site.graph,
        launch=flow.launch,
        kernel=site.kernel if is_used else None,
        buffer=argument.buffer or None,
        argument=argument.name,
        source=told.source(case.hop),
        log=flow.log,
        proof=sentences,
        links=told.links(),
    )


def _severity(tracer: Tracer, case: Case) -> Any:
    """Return the severity; some infinities may be intended: log(0), a division by 0, a mask that was not read."""
    if not case.leaves:
        return "info" if case.is_nan and case.how == "came in" and tracer.stops(case.hop) else "warning"
    if case.is_nan or case.came_back is not None:
        return "critical"
    if case.how == "not known" and not case.hop.row.positive_infinity:
        return "warning"
    if tracer.constant(case.hop) is not None:
        return "warning"
    names = operators(tracer.site(case.hop.flow.site))
    return "warning" if any(name.split(".")[-1].startswith(_INTENDED) for name in names) else "critical"


def _elements(hop: Hop) -> list[dict[str, Any]]:
    """Return the elements of small tensors in the finding, where the log has them."""
    if hop.row.moment == "after":
        read = text.elements(hop.flow.inputs, written=False)
    else:
        has_them = hop.row.elements is not None
        read = [text.elements_of(text.label(hop.argument), hop.row, written=False)] if has_them else []
    return [*read, *text.elements(hop.flow.outputs, written=True)]
