"""Compares a log that PyTorch's DebugMode saved with another one, or with a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal

from stepscope.viewer.compare.call_pairs import VIEWS, Pair, compared_pairs, match
from stepscope.viewer.compare.debug_log import is_debug_log, read_debug_log
from stepscope.viewer.compare.queries.pairs import side_of
from stepscope.viewer.compare.queries.trace_calls import trace_calls
from stepscope.viewer.compare.queries.values import MOST_BUFFERS, MOST_INPUTS, MOST_LAUNCHES
from stepscope.viewer.compare.readings import Call, Difference, Reading
from stepscope.viewer.compare.rows import (
    FORMAT,
    TOLERANCE,
    Compared,
    Comparison,
    Growth,
    InputDifference,
    KernelChange,
    LaunchDifference,
    Place,
    Side,
    TensorDifference,
    Verdict,
    Wanted,
    WithoutPartner,
)
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural


def has_debug_log(*sides: Wanted) -> bool:
    """Return whether one of the sides is a log that DebugMode saved."""
    return any(len(side.trace) == 1 and is_debug_log(side.trace[0]) for side in sides)


def compare_calls(left: Wanted, right: Wanted, tolerance: float | None) -> Comparison:
    """Compare two sides of which at least one is a log of DebugMode.

    Raises StepscopeError if one cannot be read or if they have no call in common."""
    with ExitStack() as opened:
        traces = [
            None if has_debug_log(side) else opened.enter_context(open_trace(side.trace)) for side in (left, right)
        ]
        return compare_opened_calls((traces[0], left), (traces[1], right), tolerance)


def compare_opened_calls(
    left: tuple[Trace | None, Wanted], right: tuple[Trace | None, Wanted], tolerance: float | None
) -> Comparison:
    """Compare like `compare_calls`; the trace of a side is None if it is a log of DebugMode."""
    (ours, our_side, our_lost), (theirs, their_side, their_lost) = (_read(*side) for side in (left, right))
    has_trace = left[0] is not None or right[0] is not None
    matched = match(ours, theirs, has_trace)
    if not matched:
        raise StepscopeError(
            f"{left[1].trace[0]} and {right[1].trace[0]} have no call in common, so there is nothing to compare: no"
            " operator or Triton kernel has a partner of the same name and sizes."
        )
    alone = _without(ours, [a for a, _ in matched]), _without(theirs, [b for _, b in matched])
    pairs = list(compared_pairs(matched, alone, tolerance))
    lone = [*_lone("left", alone[0]), *_lone("right", alone[1])]
    for side, lost in (("left", our_lost), ("right", their_lost)):
        if lost:
            lone.append(WithoutPartner(side, "unreadable entry", "the log of DebugMode", lost))  # type: ignore[arg-type]
    first = next((pair for pair in pairs if pair.differing_inputs or pair.differing_outputs), None)
    compared = _counted(pairs)
    verdict, sentence = _verdict(first, compared, lone, has_trace)
    return Comparison(
        FORMAT, our_side, their_side, compared_by="norms" if has_trace else "hashes",
        by_bits=tolerance is None and not has_trace, tolerance=TOLERANCE if tolerance is None else tolerance,
        verdict=verdict, sentence=sentence + _steps_to_name(left, right, lone), facts=[], kernels=_changes(pairs),
        graphs=[], without_partner=lone, compared=compared, inputs=_inputs(first), launches=_launches(first, pairs),
        nondeterministic=None, growth=list(_growth(pairs))[:MOST_BUFFERS], times=None,
    )  # fmt: skip


def _read(trace: Trace | None, side: Wanted) -> tuple[list[Call], Side, int]:
    """Return the calls of a side, what it is, and how many of its entries are unreadable."""
    if trace is not None:
        return trace_calls(trace, side), side_of(trace, side), 0
    if (side.step, side.rank, side.log) != (None, None, None):
        raise StepscopeError(
            f"{side.trace[0]} is a log of DebugMode, which has no steps, ranks or logs to choose from."
        )
    log = read_debug_log(side.trace[0])
    values = sum(one.is_known for call in log.calls for one in (*call.inputs, *call.outputs))
    return log.calls, Side(side.trace, None, None, None, side.trace, 0, len(log.calls), values), log.unreadable


def _without(calls: Sequence[Call], paired: Sequence[Call]) -> list[Call]:
    numbers = {call.number for call in paired}
    return [call for call in calls if call.number not in numbers]


def _lone(side: Literal["left", "right"], calls: Sequence[Call]) -> list[WithoutPartner]:
    found: defaultdict[str, int] = defaultdict(int)
    for call in calls:
        where = f" ({call.source.place})" if call.source else ""
        found["operators that make views" if call.operator in VIEWS else f"{call.name}{where}"] += 1
    return [WithoutPartner(side, "call", name, count) for name, count in found.items()]


def _counted(pairs: Sequence[Pair]) -> Compared:
    states = [d.state for pair in pairs for *_, d in (*pair.inputs, *pair.outputs)]
    known = len(states) - states.count("unknown")
    return Compared(0, 0, len(pairs), known, states.count("differs"), states.count("unknown"), 0)


def _changes(pairs: Sequence[Pair]) -> list[KernelChange]:
    """Return the calls of which the arguments that are no tensors differ."""
    return [
        KernelChange(None, one.left.name, None, None, one.left.source, [(_statement(one.left), _statement(one.right))])
        for one in pairs
        if one.has_other_arguments
    ]


def _statement(call: Call) -> str:
    return f"{call.name}({call.arguments})"


def _place(pair: Pair) -> Place:
    return Place(
        None, pair.left.name, None, None, pair.left.number, pair.right.number, pair.left.step, pair.right.step,
        pair.left.source or pair.right.source,
    )  # fmt: skip


def _tensor(moment: str, left: Reading, right: Reading, found: Difference) -> TensorDifference:
    sides = [replace(one.numbers, norm=one.numbers.norm or one.bounds) for one in (left, right)]
    return TensorDifference(left.name, None, moment, None, None, found.relative, *sides)


def _inputs(first: Pair | None) -> list[InputDifference]:
    if first is None:
        return []
    return [InputDifference(_place(first), _tensor("before", *one)) for one in first.differing_inputs][:MOST_INPUTS]


def _launches(first: Pair | None, pairs: Sequence[Pair]) -> list[LaunchDifference]:
    """Return the calls whose inputs agree or are unknown and whose outputs differ."""
    wanted = [
        pair
        for pair in pairs
        if pair.differing_outputs
        and (pair.input_state == "agree" or (pair is first and pair.input_state in ("near", "unknown")))
    ]
    return [
        LaunchDifference(_place(pair), pair.input_state, [_tensor("after", *one) for one in pair.differing_outputs], 1)
        for pair in wanted[:MOST_LAUNCHES]
    ]


def _growth(pairs: Sequence[Pair]) -> Iterator[Growth]:
    for pair in pairs:
        for left, _, found in pair.differing_outputs:
            far = found.relative
            yield Growth(None, pair.left.name, left.name, None, 1, 1, pair.left.number, far, far, far)


def _verdict(
    first: Pair | None, compared: Compared, lone: Sequence[WithoutPartner], has_trace: bool
) -> tuple[Verdict, str]:
    if first is not None and first.differing_inputs:
        return "input", _input_sentence(first)
    if first is not None:
        return ("launch" if first.input_state == "agree" else "output"), _call_sentence(first)
    if not compared.value_rows and has_trace and compared.not_comparable:
        known = (
            f"No difference was found, but nothing is proved: {plural(compared.not_comparable, 'norm')} of DebugMode"
            " lie within the bounds that the statistics of the trace give them. `stepscope run --level values"
            " --elements 1024` also records the elements of small tensors, whose norms are then known."
        )
    elif not compared.value_rows:
        lacking = "a norm and statistics" if has_trace else "hashes on both sides"
        known = (
            f"No pair of calls has {lacking}, so results were not compared;"
            " `DebugMode.log_tensor_hashes()` records them."
        )
    else:
        known = f"No result that was compared differs: {plural(compared.value_rows, 'tensor')} agree."
    if any(one.what == "call" for one in lone) and not has_trace:
        return "structure", f"One side has calls that the other lacks. {known}"
    return ("no difference" if compared.value_rows else "nothing compared"), known


def _input_sentence(first: Pair) -> str:
    names = ", ".join(left.name for left, *_ in first.differing_inputs)
    start = f"The first difference is what {_said(first)} reads: {names}."
    if first.lone_before:
        before = plural(first.lone_before, "call")
        verb = "has" if first.lone_before == 1 else "have"
        return f"{start} {before} before it {verb} no partner on the other side, so the difference may begin there."
    return f"{start} No result that was compared before it differs."


def _call_sentence(first: Pair) -> str:
    start = f"The first difference is what {_said(first)} computes"
    state, other = first.input_state, first.has_other_arguments
    if state == "agree":
        return f"{start}: its inputs agree{', and its other arguments differ' * other}."
    start += ", and its arguments differ" * other
    if state == "near":
        return f"{start}. Its inputs differ too, by less than the tolerance, so it may only have amplified them."
    return (
        f"{start}. Not all of its inputs are known on both sides, so they may differ, too;"
        " `DebugMode.log_tensor_hashes(hash_inputs=True)` records them."
    )


def _said(pair: Pair) -> str:
    source = pair.left.source or pair.right.source
    where = f" ({source.place})" if source else ""
    return f"call {pair.left.number}, {pair.left.name}{where},"


def _steps_to_name(
    left: tuple[Trace | None, Wanted], right: tuple[Trace | None, Wanted], lone: Sequence[WithoutPartner]
) -> str:
    """Return a sentence that asks for a step where a trace has launches that the log of DebugMode may not cover."""
    for name, (trace, side) in (("left", left), ("right", right)):
        if trace is not None and side.step is None and any(one.side == name for one in lone):
            return f" The log of DebugMode does not say which steps it covers; name one, as in {side.trace[0]}#step=0."
    return ""
