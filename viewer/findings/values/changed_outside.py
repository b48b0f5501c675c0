"""An input of a graph changed between two calls although it stayed in its memory and no launch of the log writes this
memory: code outside of the recorded graphs did, through this tensor or another one that shares its memory. Reported for
information are buffers of modules that had the same bits in three or more calls and then changed, and parameters that
did if the log has no backward pass, because optimizers write parameters. An input of 16 or more floating-point elements
is reported, too, if it is not in the memory of a parameter and its standard deviation was multiplied by the same factor
three or more times in a row, from call to call or, where the calls take turns with parts of the same memory, from round
to round. This is a warning if the mean was not multiplied by this factor, or if the factor is below 0.1 or above 10:
the program transforms the same data in place again and again. Otherwise the state may be meant to decay, so the finding
is for information. Digests of all elements are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, open_launch, program_name, rule_of
from stepscope.viewer.findings.values.describe import describe, number
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.program_names import name_in_program, program_names
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.outside_changes import (
    OutsideInput,
    changed_outside,
    in_memory_of_parameters,
    trained_logs,
)
from stepscope.viewer.values.queries.values import has_values, values_of

SUMMARY = "An input changed between two calls although no launch wrote it"
TITLE_IS_MEASURED = True

LEAST_CALLS, LEAST_ELEMENTS, MOST_FINDINGS = 4, 16, 10
_MOST_PARTS, _ROUNDS = 64, 2
"""Calls of a round, and the least rounds of several calls that must be alike."""
_SAME_FACTOR, _NO_FACTOR = 1e-3, 1e-2
_SHIFT, _DECAYS = 0.05, (0.1, 10.0)
"""Standard deviations by which the mean is off, and factors that state may be meant to be multiplied by."""


class Change(NamedTuple):
    """A change of an input between the call at `position` of its readings and the one `calls` before."""

    of: OutsideInput
    position: int
    factor: float | None = None
    """The factor that its values were multiplied by in this call and in those after it; None for a single change."""
    calls: int = 1

    @property
    def may_be_meant(self) -> bool:
        """Return whether the values only grow or decay, and not by a factor of a change of units."""
        if self.factor is None:
            return True
        before, now = (self.of.means[at] or 0.0 for at in (self.position - self.calls, self.position))
        spread = self.of.spreads[self.position] or 0.0
        least, most = _DECAYS
        return least <= self.factor <= most and abs(now - self.factor * before) <= _SHIFT * spread


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per input of the program."""
    trace = evidence.trace
    if not has_values(trace):
        return []
    changes = trace.once(_changes)
    first: dict[tuple[int, str | None], Change] = {}
    for change in changes:
        first.setdefault((change.of.log, name_in_program(trace, change.of.graph, change.of.name)), change)
    return [_finding(trace, change) for change in [*first.values()][:MOST_FINDINGS]]


def growing_logs(trace: Trace) -> set[int]:
    """Return the logs in which code outside of the graphs multiplies an input by more than 1 again and again."""
    return {change.of.log for change in trace.once(_changes) if (change.factor or 0.0) > 1}


def _changes(trace: Trace) -> list[Change]:
    trained = trained_logs(trace)
    inputs = changed_outside(trace, LEAST_CALLS)
    parameters = in_memory_of_parameters(trace, inputs)
    found = [_change(trace, one, one.log in trained, one.in_storage in parameters) for one in inputs]
    return [change for change in found if change is not None]


def _change(trace: Trace, one: OutsideInput, is_trained: bool, is_parameter: bool) -> Change | None:
    known = program_names(trace, one.graph).get(one.name)
    if known is None or known.kind not in ("buffer", "input", "parameter"):
        return None
    if not is_parameter and (scaled := scaling(one)) is not None:
        return scaled
    at = next(i for i, (before, now) in enumerate(pairwise(one.digests), 1) if now != before)
    is_state = (known.kind == "buffer" and not is_parameter) or (known.kind == "parameter" and not is_trained)
    return Change(one, at) if is_state and at >= LEAST_CALLS - 1 else None


def scaling(one: OutsideInput) -> Change | None:
    """Return the first change of those that multiply the values of an input by the same factor, or None."""
    if one.numel < LEAST_ELEMENTS or "float" not in one.dtype:
        return None
    for calls in range(1, min(_MOST_PARTS, len(one.spreads) // (_ROUNDS + 1)) + 1):
        needed = LEAST_CALLS - 1 if calls == 1 else max(LEAST_CALLS - 1, _ROUNDS * calls)
        factors = _factors(one.spreads, calls)
        for i in range(len(factors) - needed + 1):
            if _are_alike(factors[i : i + needed]):
                return Change(one, i + calls, factors[i], calls)
    return None


def _are_alike(factors: Sequence[float | None]) -> bool:
    some = [factor for factor in factors if factor is not None and abs(factor - 1) > _NO_FACTOR]
    return len(some) == len(factors) and all(math.isclose(one, some[0], rel_tol=_SAME_FACTOR) for one in some)


def _factors(spreads: Sequence[float | None], calls: int) -> list[float | None]:
    """Return the quotients of the spreads of two calls of which one is `calls` later."""
    return [now / before if before and now else None for before, now in zip(spreads, spreads[calls:], strict=False)]


def _finding(trace: Trace, change: Change) -> Timed:
    one, at = change.of, change.position
    (site,) = site_rows(trace, [one.site])
    launch, step, name = one.launches[at], one.steps[at], program_name(trace, one.graph, one.name)
    earlier = at - change.calls
    where, source = launch_place(trace, launch), source_line(site)
    rows = values_of(trace, [one.readings[earlier], one.readings[at]])
    was, now = rows[one.readings[earlier]], rows[one.readings[at]]
    between = f"between launch {was.launch} of step {one.steps[earlier]} and launch {launch} of step {step}"
    if change.factor is None:
        title = f"{name}{place(source)} changed {between}, although no recorded launch writes it"
        before = f"It had the same bits in the {plural(at, 'call')} before"
    else:
        by = number(float(f"{change.factor:.3g}"))
        title = f"Code outside of the graphs multiplies {name}{place(source)} by {by} in place between the calls"
        before = f"first {between}, and no recorded launch writes it"
    return where.time_unix_ns, Finding(
        kind="changed_outside",
        severity="info" if change.may_be_meant else "warning",
        title=title,
        proof=[f"was {describe(name, was)}; is {describe(name, now)}", before],
        links=[open_launch(launch), open_launch(was.launch)],
        rule=rule_of(__doc__),
        evidence={
            "was": describe(name, was),
            "is": describe(name, now),
            "launch_before": was.launch,
            "calls_before": at,
            "factor": change.factor,
            "calls_per_round": change.calls,
        },
        page=f"/steps/{step}?log={one.log}&launch={launch}",
        rank=where.rank,
        log=one.log,
        step=step,
        launch=launch,
        graph=one.graph,
        kernel=site.kernel,
        argument=one.name,
        buffer=one.name,
        source=source,
    )
