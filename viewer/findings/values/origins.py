"""Traces a NaN or an infinity back to the launch that made it, or to the input through which it came in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from stepscope.viewer.findings.values.describe import is_bad, is_certain, is_infinite, is_nan, label
from stepscope.viewer.findings.values.masks import MINUS_INFINITY, Masks
from stepscope.viewer.findings.values.operations import operators
from stepscope.viewer.graphs.queries.graphs import code_of_graph, graph_row, operands_left_out, site_rows
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.flow import Flow, FlowArgument, Flows
from stepscope.viewer.values.queries.nonfinite import same_before, same_within, writes_nan
from stepscope.viewer.values.queries.printed_code import sites_that_name_all
from stepscope.viewer.values.rows import ValueRow

Is = Callable[[ValueRow], bool]
_MOST_HOPS = 5000
_MOST_INPUTS = 4
_CONSTANT = re.compile(
    r"\b(?P<name>tmp\d+) = -?(?!tl\.where)(?:[\w:.]+(?:<[\w:]+>)?\((?:\[[1, ]*\], )?)*?"
    r"(?P<value>-?std::numeric_limits<[^<>]*>::(?:infinity|quiet_NaN)\(\)|float\(['\"](?:nan|-?inf)['\"]\)|0\.0\b)"
)
"""Constants in the source of kernels that may cause NaN or infinities; initial values of reductions and of padding are
none."""
NAN_CONSTANT = "a NaN constant"
DIVISION = "a division by the constant 0"
_SPREADS = ("std", "var")
_CHECKS_FOR_NAN = re.compile(
    r"(?:^|[._:/])(?:xlogy|xlog1py|angle|sgn|\w*quantile|\w*nanm\w+|\w*nll_loss\w*|renorm|igammac?|\w*cdist\w*)(?:$|[._\d])"
)
"""Operators whose decompositions have a NaN constant."""
_TESTS_FOR_NAN = re.compile(r"(?:^|[._:/])(?:isnan|isfinite|nan_to_num|nan(?:sum|mean|median|quantile))(?:$|[._\d])")


@dataclass(frozen=True)
class Hop:
    """A launch on the path of a value."""

    flow: Flow
    argument: FlowArgument
    row: ValueRow
    """Row of the value that was written or came in."""


How = Literal["made", "came in", "not known"]


@dataclass(frozen=True)
class Origin:
    """Origin of a value; `hops` begin there."""

    hops: list[Hop]
    how: How
    """``not known`` if it was first seen here but may come from something that was not read."""

    @property
    def is_made(self) -> bool:
        return self.how == "made"

    @property
    def first(self) -> Hop:
        return self.hops[0]


@dataclass
class Case:
    """An origin with all that it explains."""

    hop: Hop
    """Launch that made it, that first read it as an input, or at which it was first seen."""
    how: How
    is_nan: bool
    grown_from: Origin | None = None
    launches: int = 1
    steps: set[int] = field(default_factory=set)
    leaves: bool = False
    explains: list[int] = field(default_factory=list)
    """Other launches that it reached."""
    came_back: Case | None = None
    """A NaN that came in from outside of compiled code after this infinity left a graph, in the same step."""
    forward: Hop | None = None
    """The launch that made an infinity in the forward of an operator whose backward made this NaN."""
    overflows: list[Hop] = field(default_factory=list)
    """Other launches of the call in which too large values overflow."""

    def add(self, same: Case) -> None:
        """Add another case with the same cause and effect."""
        self.launches += same.launches
        self.steps |= same.steps
        self.leaves |= same.leaves
        self.explains += [same.hop.flow.launch, *same.explains]


class Tracer:
    """Follows the rows of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.flows = Flows(trace)
        self.masks = Masks(trace)
        self._sites: dict[int, SiteRow] = {}
        self._phases: dict[int, str | None] = {}
        self._writes_nan: dict[int, bool] = {}
        self._left_out: dict[int, tuple[str | None, set[int]]] = {}

    def phase(self, graph: int) -> str | None:
        """Return ``forward``, ``backward`` or ``inference``; None if unknown."""
        if graph not in self._phases:
            row = graph_row(self.trace, graph)
            self._phases[graph] = row.phase if row is not None else None
        return self._phases[graph]

    def read_sites(self, sites: Iterable[int]) -> None:
        """Read all of these launch sites at once."""
        unread = sorted({*sites} - self._sites.keys())
        if unread:
            self._sites.update((row.site, row) for row in site_rows(self.trace, unread))

    def site(self, site: int) -> SiteRow:
        if site not in self._sites:
            (self._sites[site],) = site_rows(self.trace, [site])
        return self._sites[site]

    def origin(self, row: ValueRow, is_one: Is) -> Origin:
        """Return the origin of the value in `row` that fulfils `is_one`."""
        hops: list[Hop] = []
        seen: set[int] = set()
        while True:
            seen.add(row.value)
            flow = self.flows.of_launch(row.launch)
            hops.append(Hop(flow, self._argument(flow, row), row))
            before = self._before(flow, row, is_one)
            if before is None or before.value in seen or len(hops) >= _MOST_HOPS:
                return Origin(hops[::-1], self._how(hops[-1]))
            row = before

    def _how(self, first: Hop) -> How:
        if first.row.moment == "after":
            return "not known" if self.unread(first.flow) else "made"
        return "came in" if first.argument.held == "input" else "not known"

    def unread(self, flow: Flow) -> list[str]:
        """Return the tensors through which a launch may have read a NaN or an infinity and that were not fully read."""
        site = self.site(flow.site)
        exact = {one.argument for one in site.arguments if one.tensors and not any(map(_may_be_bad, one.tensors))}
        inputs = [one for one in flow.inputs if one.argument not in exact and not _is_filled(site, flow, one)]
        names = [label(one) for one in inputs if not is_certain([one])]
        if operands_left_out(self.trace, site.graph) is not None:  # there, roles of arguments are only inferred
            names += [label(one) for one in flow.arguments if one.role == "out" and one.held != "uninitialised"]
        names += [label(one) for one in kept_by_unwritten(flow) if one.argument not in exact]
        left_out = self.left_out(site)
        return [*names, *([left_out] if left_out else [])]

    def left_out(self, site: SiteRow) -> str | None:
        """Return the tensors that a launch may read and that its record does not name, or None."""
        if site.graph not in self._left_out:
            what = operands_left_out(self.trace, site.graph)
            self._left_out[site.graph] = what, sites_that_name_all(self.trace, site.graph) if what else set()
        what, complete = self._left_out[site.graph]
        return None if site.site in complete else what

    def _argument(self, flow: Flow, row: ValueRow) -> FlowArgument:
        known = flow.arguments if row.argument >= 0 else self.flows.of_call(flow.call).inputs
        found = next((one for one in known if one.argument == row.argument), None)
        return found or FlowArgument(row.argument, f"argument {row.argument}", "inout", "", "", None, [], [], [])

    def _before(self, flow: Flow, row: ValueRow, is_one: Is) -> ValueRow | None:
        """Return the row from which the value of `row` came, or None."""
        if row.moment == "before":
            source = [one for one in self._argument(flow, row).source if is_one(one)]
            return source[0] if source else same_before(self.trace, row.value)
        if self.site(flow.site).kind == "subgraph":
            inner = self.flows.inner_calls(flow.launch)
            found = same_within(self.trace, row.value, inner) if inner else None
            if found is not None:
                return found
        return next((one for one in bad_inputs(flow, is_one)), None)

    def grown_from(self, flow: Flow) -> Origin | None:
        """Return the infinity that a launch without NaN inputs read, preferably one that was made and is no mask."""
        found = [self.origin(row, is_infinite) for row in bad_inputs(flow, is_infinite)[:_MOST_INPUTS]]
        return min(found, key=lambda one: (self.is_mask(one), not one.is_made), default=None)

    def stops(self, hop: Hop) -> bool:
        """Return whether a NaN came in at `hop` and is expected: the launches of its call that read a NaN test for it
        and, by all elements that they wrote, passed none on, and no launch of the log wrote one."""
        if hop.row.moment == "after" or hop.argument.argument < 0 or hop.argument.held != "input":
            return False
        readers = [flow for flow in self.flows.of_call(hop.flow.call).launches.values() if bad_inputs(flow, is_nan)]
        if not all(any(map(_TESTS_FOR_NAN.search, operators(self.site(flow.site)))) for flow in readers):
            return False
        written = [argument.after for flow in readers for argument in flow.outputs]
        if not all(rows and all(row.nan == 0 and row.looked_at == row.numel for row in rows) for rows in written):
            return False
        log = hop.flow.log
        if log not in self._writes_nan:
            self._writes_nan[log] = writes_nan(self.trace, log)
        return not self._writes_nan[log]

    def is_mask(self, origin: Origin) -> bool:
        """Return whether an infinity is intended or came in from outside."""
        return origin.how == "came in" or self.makes_masks(origin.first)

    def makes_masks(self, hop: Hop) -> bool:
        """Return whether a launch writes -inf intentionally and no other infinity, or leaves memory unchanged."""
        return self.masks.makes(hop.flow.site, positive=bool(hop.row.positive_infinity))

    def constant(self, hop: Hop) -> str | None:
        """Return ``a NaN constant``, ``an infinite constant`` or ``a division by the constant 0`` if the kernel that
        made a value computes with one that is its cause: a NaN, or an infinity of the same sign. Negative infinities,
        which masks use, explain no NaN."""
        if hop.row.moment != "after" or bad_inputs(hop.flow, is_bad):
            return None
        site = self.site(hop.flow.site)
        source = self._kernel_source(site) or ""
        signs = {_sign(found) for found in _CONSTANT.finditer(source) if _is_computed_with(source, found)}
        if is_nan(hop.row) and "nan" in signs and not any(_CHECKS_FOR_NAN.search(name) for name in operators(site)):
            return NAN_CONSTANT
        if "0" in signs:
            return DIVISION
        is_one = hop.row.positive_infinity or is_nan(hop.row)
        return "an infinite constant" if ("+" if is_one else "-") in signs else None

    def spread(self, hop: Hop) -> str | None:
        """Return the ``std`` or ``var`` of too few elements that is the cause of a value, or None if there is none."""
        if self.constant(hop) != DIVISION:
            return None
        names = operators(self.site(hop.flow.site))
        return next((spread for spread in _SPREADS if any(spread in name for name in names)), None)

    def has_minus_infinity(self, site: SiteRow) -> bool:
        """Return whether the source of a kernel contains -inf, as masks write it."""
        return MINUS_INFINITY.search(self._kernel_source(site) or "") is not None

    def _kernel_source(self, site: SiteRow) -> str | None:
        """Return the source of a kernel that Inductor wrote, or None if the log does not have it."""
        code = code_of_graph(self.trace, site.graph)
        begin = re.search(rf"^{re.escape(site.kernel)} = async_compile\..*?'''", code or "", re.MULTILINE | re.DOTALL)
        return None if code is None or begin is None else code[begin.end() :].partition("'''")[0]


def _is_computed_with(source: str, constant: re.Match[str]) -> bool:
    """Return whether a kernel computes with a constant: an infinity or NaN that is not only compared, or a 0 that
    divides."""
    copies = [(constant["name"], constant.end())]
    for name, begin in copies:
        scope = re.split(rf"\b{name} = ", source[begin:], maxsplit=1)[0]
        copied = list(re.finditer(rf"\b(tmp\d+) = [\w:.<>]+\({name}[,)]", scope))
        copies += [(copy[1], begin + copy.end()) for copy in copied]
        used = re.sub(rf"(?:[=!<>]=|[<>]) {name}\b|\b{name} (?:[=!<>]=|[<>]) |= [\w:.<>]+\({name}[,)]", "", scope)
        if re.search(rf"/ {name}\b" if _sign(constant) == "0" else rf"\b{name}\b", used):
            return True
    return False


def _sign(constant: re.Match[str]) -> str:
    if constant["value"] == "0.0":
        return "0"
    return "nan" if "nan" in constant["value"].lower() else "-" if "-" in constant[0] else "+"


def bad_inputs(flow: Flow, is_one: Is) -> list[ValueRow]:
    """Return the rows of inputs that fulfil `is_one`, the earliest version first."""
    found = [row for argument in flow.inputs for row in argument.before if is_one(row)]
    return sorted(found, key=lambda row: row.value)


def _is_filled(site: SiteRow, flow: Flow, argument: FlowArgument) -> bool:
    """Return whether a launch reads only what it writes itself, as parts that have all elements of `argument`."""
    if not argument.is_own:
        return False
    seen = {one.argument: one.tensors[0] for one in site.arguments if one.tensors}
    parts = {
        view["offset"]: prod(view["size"])
        for one in flow.outputs
        if one.storage == argument.storage and (view := seen.get(one.argument)) is not None
    }
    whole = seen.get(argument.argument)
    return whole is not None and sum(parts.values()) >= prod(whole["size"])


def kept_by_unwritten(flow: Flow) -> list[FlowArgument]:
    """Return the inputs of the graph that a launch only writes: elements that it does not write keep what the caller
    passed, which was not read."""
    read = {one.buffer for one in flow.inputs}
    return [one for one in flow.outputs if one.role == "out" and one.held == "input" and one.buffer not in read]


def _may_be_bad(tensor: Mapping[str, Any]) -> bool:
    """Return whether the dtype has NaN and infinities."""
    return str(tensor["dtype"]).startswith(("float", "bfloat", "complex"))


def nan_rows(flow: Flow) -> list[ValueRow]:
    return [row for argument in flow.outputs for row in argument.after if is_nan(row)]
