"""Tells the cause and the effect of a NaN or an infinity in a title, two lines of proof, and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from stepscope.viewer.findings.evidence import open_buffer, program_name
from stepscope.viewer.findings.values import describe as text
from stepscope.viewer.findings.values.operations import (
    BACKWARD,
    Bad,
    fused,
    makes_no_nan,
    operation,
    operators,
    overflows,
    place,
    places,
    short_dtype,
    source_line,
)
from stepscope.viewer.findings.values.origins import (
    DIVISION,
    NAN_CONSTANT,
    Case,
    Hop,
    Origin,
    Tracer,
    bad_inputs,
    kept_by_unwritten,
    nan_rows,
)
from stepscope.viewer.findings.values.suspects import (
    MOST_EXPONENT,
    Suspect,
    averages_loss,
    backward_suspects,
    exceeding,
    in_order,
    listed,
    slope,
    suspects,
)
from stepscope.viewer.graphs.queries.graphs import graph_label, graph_row
from stepscope.viewer.graphs.queries.hidden_aliases import is_custom
from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.graphs.queries.unwritten_results import allocations
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import ProofLink
from stepscope.viewer.text.formats import steps_text
from stepscope.viewer.values.queries.last_gradients import last_gradient
from stepscope.viewer.values.queries.learning_rates import Rate, rates_of_only_optimizer
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.values import LIMITS

_MOST_READ = 2
_UNWRITTEN = "Generated code has NaN for memory that nothing wrote; eager code reads what the memory happens to hold."
_OF_CUSTOM = (
    "Such values remain where a custom operator leaves a part of its result unwritten, which it or its caller"
    " allocates, as with torch.empty()."
)
DIVIDES = (
    "The step divides by zero where the mean of squared gradients is zero as well; use 1e-4 or more, or keep the"
    " parameters in float32."
)
"""The effect of an eps that is zero."""
_BAD_AT_ZERO = ("div", "log", "norm", "pow", "reciprocal", "rsqrt", "sqrt")
"""Operators that make NaN or infinities of zeros, or whose backward does."""
_MASKS = ("masked_fill", "where")
"""Operators that programs mask with."""


@dataclass(frozen=True)
class Told:
    """What is said about one case."""

    tracer: Tracer
    case: Case

    def title(self) -> str:
        """Return the cause, then the effect: ``fp16 overflow in matmul (a.py:3) becomes NaN in softmax (a.py:5)``."""
        back = self.case.came_back
        return self._title() + (f", and NaN later enters with {self._came_in(back.hop)}" if back else "")

    def _title(self) -> str:
        case, hop = self.case, self.case.hop
        written, name, op, at = hop.row.moment == "after", self._label(hop), self._name(hop), self._at(hop)
        words = text.what(nan_rows(hop.flow) if case.is_nan and written else [hop.row])
        steps = steps_text(sorted(case.steps) or [hop.flow.step])
        is_both = " and " in words
        are, come = ("are", "come") if is_both else ("is", "comes")
        if case.how == "came in":
            first_use = f"it is first used in {self._all_of(hop)}"
            if hop.argument.argument < 0:
                first_use = "no recorded launch uses it"
            first_use += ", whose kernel tests for NaN and propagates none" if self.tracer.stops(hop) else ""
            return f"{words} {'enter' if is_both else 'enters'} with {self._came_in(hop)} in {steps}: {first_use}"
        if not written:
            return f"{words} {are} first seen in input {name} of {op}{at} in {steps}"
        if case.how == "not known":
            return f"{words} {are} first seen in the output of {op}{at} in {steps}{self._before()}"
        if case.grown_from is not None:
            return self._grown(case.grown_from, f"{op}{at}", steps)
        if is_overflow(self.tracer, hop):
            return f"{short_dtype(hop.row.dtype)} overflow in {op}{at} in {steps}"
        if (masked := self._masked(hop)) is not None:
            mask, rows, count = masked
            where = f"leaves only -inf in {rows:,} of {count:,} rows" if rows else "may leave only -inf in a row"
            return f"{words} is produced by {op}{at} in {steps}: {mask} {where}"
        if (labels := self._ignored_labels(hop)) is not None:
            who = listed(self._suspects(hop)) or f"nll_loss{at}"
            return f"{words} is produced by {who} in {steps}: {labels}, so that no loss is left to average"
        if (empty := self._unwritten(hop)) is not None:
            name, line = empty
            return f"{words} comes from elements of {name}{place(line)} that nothing wrote, in {op}{at} in {steps}"
        if (spread := self._spread(hop)) is not None:
            return f"{words} {come} from {spread}{at}, in {steps}"
        if (constant := self.tracer.constant(hop)) is not None:
            return f"{words} {come} from {constant} in the kernel of {op}{at} in {steps}"
        who = listed(self._suspects(hop)) or f"{op}{at}"
        return f"{words} {are} produced by {who} in {steps}"

    def _suspects(self, hop: Hop) -> list[Suspect]:
        """Return the operators that may have made a NaN in a fused kernel whose inputs are all finite, if nothing tells
        which of them did."""
        is_new = self.case.how == "made" and self.case.is_nan and self.case.grown_from is None
        if not is_new or hop is not self.case.hop or hop.row.moment == "before":
            return []
        site = self.tracer.site(hop.flow.site)
        is_of_loss = self._ignored_labels(hop) is not None and averages_loss(site)
        if is_of_loss or self.tracer.constant(hop) is not None or bad_inputs(hop.flow, text.is_bad):
            return []
        return backward_suspects(site) if self._is_backward(hop) else in_order(suspects(site), hop.flow)

    def _exponent(self, hop: Hop) -> list[str]:
        """Return a line about what makes the exponential infinite if that is the first suspect."""
        largest = exceeding(hop.flow)
        if largest is None or next((name for name, _ in self._suspects(hop)), None) != "exp":
            return []
        reach = f"{self._namer(hop)(text.label(largest[0]))} has magnitudes up to {largest[1]:.4g}"
        return [f"The exponential of more than {MOST_EXPONENT:.4g} is infinite; {reach}"]

    def _slope(self, hop: Hop) -> list[str]:
        """Return a line about the derivative that is not finite, if the first suspect has one."""
        first = next((slope(name) for name, _ in self._suspects(hop)), None)
        return [first] if first is not None else []

    def _spread(self, hop: Hop) -> str | None:
        spread = self.tracer.spread(hop)
        return f"the {spread} of too few elements, {DIVISION}" if spread is not None else None

    def proof(self) -> list[str]:
        """Return what the first launch read and wrote, or what the first and the last launch wrote."""
        hop, grown = self.case.hop, self.case.grown_from
        if hop.row.moment == "before":
            return [text.describe(self._label(hop), hop.row), *self._between(hop)]
        if grown is not None:
            return [self._wrote(grown.first), *self._between(grown.first), self._wrote(hop), *self._overflows()]
        inputs = self._inputs(hop)
        back = self.case.came_back
        came_back = (
            [f"This entered later in the step: {text.describe(self._label(back.hop), back.hop.row)}"] if back else []
        )
        forward = [self._wrote(self.case.forward)] if self.case.forward else []
        empty = [_UNWRITTEN] if self._unwritten(hop) is not None else []
        custom = [_OF_CUSTOM] if self._is_of_custom(hop) else []
        return [
            *forward,
            *inputs,
            self._wrote(hop),
            *self._exponent(hop),
            *self._slope(hop),
            *empty,
            *custom,
            *self._kept(hop),
            *came_back,
        ]

    def _inputs(self, hop: Hop) -> list[str]:
        """Return a line about the inputs of a launch. Those of a fused kernel are not all of its operator. Integers
        are left out beside other inputs: most are indices."""
        inputs, name = hop.flow.inputs, self._name(hop)
        inexact = [one for one in inputs if not one.before or not all(map(text.is_exact, one.before))]
        zeros_first = name.rpartition(" ")[2] in _BAD_AT_ZERO
        read = "; ".join(text.read(inexact or inputs, self._namer(hop), zeros_first=zeros_first)[:_MOST_READ])
        of = "the fused kernel" if text.inside(self.tracer.site(hop.flow.site)) else name
        return [f"Inputs of {of}: {read}"] if read else []

    def _is_of_custom(self, hop: Hop) -> bool:
        """Return whether a custom operator made the value from finite inputs."""
        kernel = self.tracer.site(hop.flow.site).kernel
        return is_custom(kernel) and self.case.how == "made" and not bad_inputs(hop.flow, text.is_bad)

    def _between(self, hop: Hop) -> list[str]:
        """Return what made a parameter NaN or infinite if its last gradient was finite: code outside of graphs."""
        trace, graph = self.tracer.trace, self.tracer.site(hop.flow.site).graph
        known = program_names(trace, graph).get(text.label(hop.argument))
        if hop.row.moment != "before" or known is None or known.name is None or known.kind != "parameter":
            return []
        gradient, step = last_gradient(trace, graph, known.name, hop.flow.launch) or (None, 0)
        if gradient is None or text.is_bad(gradient):
            return []
        rate = self._rate(hop)
        stepped = f"the step of {rate.name}{place(rate.source)}" if rate else "the step of the optimizer"
        finite = f"The last gradient of {known.name} was finite in step {step}"
        size = f" (largest magnitude {text.number(gradient.largest)})"
        made = f"made the {text.what([hop.row])} after the backward pass"
        if (eps := self.rounded_eps()) is not None:
            its = f"Its eps of {text.number(eps)} is zero in float16. {DIVIDES}"
            return [f"{finite}{size}, so that {stepped} {made}", its]
        return [
            f"{finite}{size}, so that other code {made}: for instance a hook on the gradient, clipping or {stepped}"
        ]

    def rounded_eps(self) -> float | None:
        """Return the eps of the only optimizer if it is zero in float16, the dtype of a parameter that became bad."""
        grown = self.case.grown_from
        hop = grown.first if grown is not None else self.case.hop
        rate = self._rate(hop) if hop.row.moment == "before" and hop.row.dtype == "float16" else None
        return rate.rounded_eps if rate is not None else None

    def _rate(self, hop: Hop) -> Rate | None:
        """Return the first rate of the only optimizer."""
        began = launch_place(self.tracer.trace, hop.flow.launch).time_unix_ns
        rates = rates_of_only_optimizer(self.tracer.trace, hop.flow.log, began)
        return rates[-1] if rates else None

    def _overflows(self) -> list[str]:
        places = dict.fromkeys(f"{self._name(hop)}{self._at(hop)}" for hop in self.case.overflows)
        return [f"Values also overflow in {place} in the same call." for place in places]

    def _kept(self, hop: Hop) -> list[str]:
        """Return a line about each input of the graph that a launch only writes, and maybe not completely."""
        named = self._namer(hop)
        return [
            f"The content of {named(label)} before the launch was not read, and elements that it does not write remain."
            for label in map(text.label, kept_by_unwritten(hop.flow))
        ]

    def source(self, hop: Hop) -> SourceLine | None:
        """Return the line of the model that most likely made what the case is about."""
        empty = self._unwritten(hop) if hop is self.case.hop else None
        if empty is not None and empty[1] is not None:
            return empty[1]
        return self._line(hop)

    def _line(self, hop: Hop) -> SourceLine | None:
        """Return the line of the model of a launch that most likely made what the case is about."""
        site, spread = self.tracer.site(hop.flow.site), self.tracer.spread(hop)
        if spread is not None:
            lines = [stack[-1] for stack in site.stacks if stack and f"{spread}(" in stack[-1].code]
            if lines:
                return lines[0]
        suspected = self._suspects(hop)
        return suspected[0][1] if suspected else source_line(site, bad=self._bad(hop), backward=self._is_backward(hop))

    def links(self) -> list[ProofLink]:
        hop, grown = self.case.hop, self.case.grown_from
        found = [ProofLink(f"open launch {hop.flow.launch}", _launch_page(hop))]
        if grown is not None and grown.first.row.moment == "after" and grown.first.flow.launch != hop.flow.launch:
            first = grown.first
            found.append(ProofLink(f"who wrote {first.argument.buffer}", _launch_page(first)))
        if hop.argument.buffer:
            found += open_buffer(self.tracer.trace, self.tracer.site(hop.flow.site).graph, hop.argument.buffer)
        return found

    def _grown(self, grown: Origin, where: str, steps: str) -> str:
        """Return the title of a NaN in `where` that an infinity caused."""
        first = grown.first
        words, name, op, at = text.what([first.row]), self._label(first), self._name(first), self._at(first)
        becomes = "become" if " and " in words else "becomes"
        if first.row.moment == "before" and grown.how == "came in":
            return f"{words} that entered with {name} {becomes} NaN in {where} in {steps}"
        if first.row.moment == "before":
            return f"{words} in input {name} of {op}{at} {becomes} NaN in {where} in {steps}"
        if is_overflow(self.tracer, first):
            return f"{short_dtype(first.row.dtype)} overflow in {op}{at} becomes NaN in {where} in {steps}"
        spread = self._spread(first)
        constant = f"{spread}," if spread is not None else self.tracer.constant(first)
        return f"{words} from {f'{constant} in ' if constant else ''}{op}{at} {becomes} NaN in {where} in {steps}"

    def _masked(self, hop: Hop) -> tuple[str, int, int] | None:
        """Return the mask that leaves no finite element in rows of a softmax, the number of these rows, and of all.

        If the launch wrote the maximum of each row, as many of these are -inf as the NaN fill rows. If it wrote none,
        but its kernel masks with -inf, the numbers are 0. Otherwise None."""
        site, made = self.tracer.site(hop.flow.site), hop.row
        mask = next((name for name in _MASKS if any(name in one for one in operators(site))), None)
        if mask is None or not made.nan or made.looked_at < made.numel or self._name(hop) != "softmax":
            return None
        at = place(next((stack[-1] for stack in site.stacks if stack and mask in stack[-1].code), None))
        found = [row for argument in hop.flow.outputs for row in argument.after if row.negative_infinity]
        for maxima in found:
            rows = maxima.negative_infinity or 0
            if maxima.looked_at == maxima.numel and rows * made.numel == made.nan * maxima.numel:
                return f"{mask}{at}", rows, maxima.numel
        return (f"{mask}{at}", 0, 0) if not found and self.tracer.has_minus_infinity(site) else None

    def _ignored_labels(self, hop: Hop) -> str | None:
        """Return text like ``all labels in tags (primals_7) are -100`` if a loss is NaN, although all that was read is
        finite, and its labels are all equal: a label that is not ignored would have a finite loss."""
        is_loss = any("nll_loss" in name for name in operators(self.tracer.site(hop.flow.site)))
        if not is_loss or not hop.row.nan or self._is_backward(hop) or bad_inputs(hop.flow, text.is_bad):
            return None
        for one in hop.flow.inputs:
            for row in one.before:
                is_whole = "int" in row.dtype and row.looked_at == row.numel
                if is_whole and row.min is not None and row.min == row.max:
                    return f"all labels in {self._namer(hop)(text.label(one))} are {text.number(row.min)}"
        return None

    def _unwritten(self, hop: Hop) -> tuple[str, SourceLine | None] | None:
        """Return the only operator, such as ``empty_like``, that allocates memory without writing it, and its line, if
        the kernel has a NaN constant for what nothing wrote, and nothing else makes NaN."""
        site = self.tracer.site(hop.flow.site)
        if not makes_no_nan(site) or self.tracer.constant(hop) != NAN_CONSTANT:
            return None
        found = allocations(self.tracer.trace, site.graph)
        return found[0] if len(found) == 1 else None

    def _before(self) -> str:
        """Return the infinity that a launch whose inputs were not all read had among them."""
        if self.case.grown_from is None:
            return ""
        first = self.case.grown_from.first
        return f"; the {text.what([first.row])} in {self._label(first)} was there before"

    def _wrote(self, hop: Hop) -> str:
        """Return a line such as ``softmax (in a kernel of 11 operators) wrote buf4: NaN in 118 of 8,192 elements``."""
        site, label = self.tracer.site(hop.flow.site), self._label(hop)
        if hop.row.moment == "before":
            return text.sentence(self._name(hop), "read", label, hop.row)
        kernel = f"in a kernel of {len(operators(site))} operators"
        is_fused, largest = text.inside(site) is not None, text.largest_read(hop.flow.inputs)
        within = f" ({kernel})" if is_fused else ""
        line = text.sentence(f"{self._name(hop)}{within}", "wrote", label, hop.row)
        if bad_inputs(hop.flow, text.is_bad) or largest is None or kept_by_unwritten(hop.flow):
            return line
        inputs = f"{largest[0]} of at most {text.number(largest[1])}"
        return f"{line}; the kernel has {inputs}" if is_fused else f"{line}, computed from {inputs}"

    def _label(self, hop: Hop) -> str:
        return self._namer(hop)(text.label(hop.argument))

    def _namer(self, hop: Hop) -> Callable[[str], str]:
        """Return the function that gives the program's names of the inputs of a launch's graph."""
        return partial(program_name, self.tracer.trace, self.tracer.site(hop.flow.site).graph)

    def _role(self, hop: Hop) -> str:
        """Return what an input of a graph is: ``parameter``, ``input``, ``gradient``, ... or what its name shows."""
        name = text.label(hop.argument)
        known = program_names(self.tracer.trace, self.tracer.site(hop.flow.site).graph).get(name)
        if known is not None and known.kind is not None:
            return known.kind
        return "gradient" if name.startswith("tangents") else "input or parameter"

    def _name(self, hop: Hop) -> str:
        spread = self.tracer.spread(hop)
        if spread is not None:
            return f"{BACKWARD if self._is_backward(hop) else ''}{spread}"
        suspected = self._suspects(hop)
        if suspected:
            return suspected[0][0]
        return operation(self.tracer.site(hop.flow.site), bad=self._bad(hop), backward=self._is_backward(hop))

    def _at(self, hop: Hop) -> str:
        """Return the line of the model that a launch computes, or its kernel if the line is unknown."""
        site, line = self.tracer.site(hop.flow.site), place(self._line(hop))
        return line or (f" ({site.kernel})" if site.kernel != self._name(hop) else "")

    def _all_of(self, hop: Hop) -> str:
        """Return all that the launch computes, with all lines, because each of them may be what reads an input."""
        site = self.tracer.site(hop.flow.site)
        operators, lines = fused(site), places(site)
        return f"{operators}{lines}" if lines and operators != operation(site) else f"{self._name(hop)}{self._at(hop)}"

    def _bad(self, hop: Hop) -> Bad:
        """Return what the launch made: the NaN, or the infinity."""
        if hop is self.case.forward:
            return text.infinity(hop.row)
        if self.case.is_nan and (self.case.grown_from is None or hop is not self.case.grown_from.first):
            return "nan"
        return text.infinity(hop.row)

    def _is_backward(self, hop: Hop) -> bool:
        return self.tracer.phase(self.tracer.site(hop.flow.site).graph) == "backward"

    def _came_in(self, hop: Hop) -> str:
        """Return text like ``the gradient of output 0 (tangents_1) of graph 0/0 backward``."""
        name, role = self._label(hop), self._role(hop)
        known = name if name.startswith(f"{role} of ") else f"{role} {name}"
        return f"the {known} of {self._graph(hop)}"

    def _graph(self, hop: Hop) -> str:
        graph = graph_row(self.tracer.trace, self.tracer.site(hop.flow.site).graph)
        if graph is None:
            return "a graph"
        label = graph_label(graph.graph, graph.compile_id, graph.phase)
        return label if label.startswith("graph ") else f"graph {label}"


def is_overflow(tracer: Tracer, hop: Hop) -> bool:
    """Return whether finite inputs gave an infinity that only means that the dtype ends."""
    site = tracer.site(hop.flow.site)
    made = hop.row.moment == "after" and text.is_infinite(hop.row) and not bad_inputs(hop.flow, text.is_bad)
    can = overflows(operation(site, bad="inf", backward=tracer.phase(site.graph) == "backward"))
    is_known = made and can and hop.row.dtype in LIMITS and not tracer.unread(hop.flow)
    return is_known and tracer.constant(hop) is None


def _launch_page(hop: Hop) -> str:
    return f"/steps/{hop.flow.step}?log={hop.flow.log}&launch={hop.flow.launch}"
