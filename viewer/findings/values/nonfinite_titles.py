"""Tells the cause and the effect of a NaN or an infinity in a title, two lines of proof, and links."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.findings.values import describe as text
from stepscope.viewer.findings.values.operations import operation, operators, place, short_dtype, source_line
from stepscope.viewer.findings.values.origins import Case, Hop, Tracer, bad_inputs, nan_rows
from stepscope.viewer.graphs.queries.graphs import graph_label
from stepscope.viewer.graphs.rows import GraphRow
from stepscope.viewer.overview.rows import ProofLink
from stepscope.viewer.text.formats import steps_text
from stepscope.viewer.values.queries.values import LIMITS
from stepscope.viewer.web.addresses import slug

_INTENDED = ("log", "div", "reciprocal", "rsqrt", "sqrt", "the backward of")
"""Operations whose infinities do not show that a result was too large."""
_MOST_READ = 2


@dataclass(frozen=True)
class Told:
    """What is said about one case; `graph` is that of its launch."""

    tracer: Tracer
    case: Case
    graph: GraphRow | None

    def title(self) -> str:
        """Return the cause, then the effect: ``fp16 overflow in matmul (a.py:3) becomes NaN in softmax (a.py:5)``."""
        case, hop = self.case, self.case.hop
        written, name = hop.row.moment == "after", text.label(hop.argument)
        rows = nan_rows(hop.flow) if case.is_nan and written else [hop.row]
        words, at = text.what(rows), self._operation(hop)
        steps = f", {steps_text(sorted(case.steps))}" if case.steps else ""
        if case.how == "came in":
            return f"{words} came in with {_given(name)} {name} of {self._graph()}{steps}: {self._first_use(at)}"
        if not written:
            return f"{words} first seen in input {name} of {at}{steps}"
        if case.how == "not known":
            return f"{words} first seen in the output of {at}{steps}{self._before()}"
        if case.grown_from is not None:
            return f"{self._cause(case.grown_from.first)} {words} in {at}{steps}"
        return f"{_overflow(hop)} in {at}{steps}" if self._is_overflow(hop) else f"{words} made in {at}{steps}"

    def proof(self) -> list[str]:
        """Return what the first launch read and wrote, or what the first and the last launch wrote."""
        hop, grown = self.case.hop, self.case.grown_from
        if hop.row.moment == "before":
            return [text.describe(text.label(hop.argument), hop.row)]
        if grown is not None:
            return [self._wrote(grown.first), self._wrote(hop)]
        read = "; ".join(text.read(hop.flow.inputs)[:_MOST_READ])
        return [f"{self._name(hop)} read {read}"] * bool(read) + [self._wrote(hop)]

    def links(self) -> list[ProofLink]:
        hop, grown = self.case.hop, self.case.grown_from
        found = [ProofLink(f"open launch {hop.flow.launch}", _launch_page(hop))]
        if grown is not None and grown.first.row.moment == "after" and grown.first.flow.launch != hop.flow.launch:
            first = grown.first
            found.append(ProofLink(f"who wrote {first.argument.buffer}", _launch_page(first)))
        if hop.argument.buffer:
            page = f"/graphs/{self.tracer.site(hop.flow.site).graph}/buffers/{slug(hop.argument.buffer)}"
            found.append(ProofLink(f"open {hop.argument.buffer}", page))
        return found

    def _cause(self, first: Hop) -> str:
        """Return the start of a sentence about an infinity: ``fp16 overflow in matmul (a.py:3) becomes``."""
        words, at = text.what([first.row]), self._operation(first, infinite=True)
        becomes = "become" if " and " in words else "becomes"
        if first.row.moment == "before" and self.case.grown_from and self.case.grown_from.how == "came in":
            return f"{words} that came in with {text.label(first.argument)} {becomes}"
        if first.row.moment == "before":
            return f"{words} in input {text.label(first.argument)} of {at} {becomes}"
        if self._is_overflow(first):
            return f"{_overflow(first)} in {at} becomes"
        return f"{words} from {at} {becomes}"

    def _before(self) -> str:
        """Return the infinity that a launch whose inputs were not all read had among them."""
        if self.case.grown_from is None:
            return ""
        first = self.case.grown_from.first
        return f"; the {text.what([first.row])} in {text.label(first.argument)} was there before"

    def _is_overflow(self, hop: Hop) -> bool:
        """Return whether finite inputs gave an infinity that only means that the dtype ends."""
        made = hop.row.moment == "after" and text.is_infinite(hop.row) and not bad_inputs(hop.flow, text.is_bad)
        name = operation(self.tracer.site(hop.flow.site), infinite=True, backward=self._is_backward(hop))
        return made and hop.row.dtype in LIMITS and not name.startswith(_INTENDED) and not self.tracer.unread(hop.flow)

    def _wrote(self, hop: Hop) -> str:
        """Return a line such as ``softmax wrote buf4 NaN 118 of 8,192, first at [0, 0, 0, 6]; …``."""
        if hop.row.moment == "before":
            return f"{self._name(hop)} read {text.describe(text.label(hop.argument), hop.row)}"
        line = f"{self._name(hop)} wrote {text.describe(text.label(hop.argument), hop.row)}"
        if not bad_inputs(hop.flow, text.is_bad):
            sizes = [row.largest for one in hop.flow.inputs for row in one.before if row.largest is not None]
            line += f"; its inputs are finite, at most {text.number(max(sizes))}" if sizes else ""
        inner = len(operators(self.tracer.site(hop.flow.site))) if text.inside(self.tracer.site(hop.flow.site)) else 0
        return line + (f"; its kernel fuses {inner} operators" if inner else "")

    def _operation(self, hop: Hop, *, infinite: bool = False) -> str:
        """Return the operation of a launch with its line of the model, or with its kernel if the line is unknown."""
        site = self.tracer.site(hop.flow.site)
        source = source_line(site, infinite=infinite or not self.case.is_nan)
        return self._name(hop, infinite=infinite) + (place(source) if source is not None else f" ({site.kernel})")

    def _name(self, hop: Hop, *, infinite: bool = False) -> str:
        is_cause = infinite or (self.case.grown_from is not None and hop is self.case.grown_from.first)
        site = self.tracer.site(hop.flow.site)
        return operation(site, infinite=is_cause or not self.case.is_nan, backward=self._is_backward(hop))

    def _is_backward(self, hop: Hop) -> bool:
        return self.tracer.phase(self.tracer.site(hop.flow.site).graph) == "backward"

    def _graph(self) -> str:
        if self.graph is None:
            return "a graph"
        label = graph_label(self.graph.graph, self.graph.compile_id, self.graph.phase)
        return label if label.startswith("graph ") else f"graph {label}"

    def _first_use(self, at: str) -> str:
        return "no recorded launch uses it" if self.case.hop.argument.argument < 0 else f"first used in {at}"


def _overflow(hop: Hop) -> str:
    return f"{short_dtype(hop.row.dtype)} overflow"


def _launch_page(hop: Hop) -> str:
    return f"/steps/{hop.flow.step}?log={hop.flow.log}&launch={hop.flow.launch}"


def _given(name: str) -> str:
    """Return the role of a graph's input that its name shows."""
    if name.startswith("tangents"):
        return "the gradient"
    return "argument (a parameter or an input)" if name.startswith("primals") else "argument"
