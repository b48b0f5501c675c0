"""Finds the calls of two sides that are partners, where a side is a log of PyTorch's DebugMode, and compares them."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from stepscope.viewer.compare.alignment import longest_common_subsequence
from stepscope.viewer.compare.queries.values import AMPLIFIED
from stepscope.viewer.compare.readings import Call, Difference, Reading, difference
from stepscope.viewer.compare.rows import InputState

MOST_CALLS = 20_000
"""Calls of a side among which partners are looked for at once."""
MOST_TRIED = 64
"""Calls of one operator among which the one that reads the same norms is looked for."""
_LIKELY = 1e-3
"""The relative difference of norms up to which calls of one operator are taken to read the same tensors."""
VIEWS = frozenset(
    (
        "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "expand", "narrow", "permute", "reshape", "select",
        "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view",
        "view_as",
    )
)  # fmt: skip
"""Operators that compute nothing. Compiled code has none of them, and the same one may stand in other places."""


@dataclass(frozen=True)
class Pair:
    left: Call
    right: Call
    inputs: list[tuple[Reading, Reading, Difference]]
    outputs: list[tuple[Reading, Reading, Difference]]
    lone_before: int
    """Calls of both sides between this pair and the one before that have no partner."""

    @property
    def differing_inputs(self) -> list[tuple[Reading, Reading, Difference]]:
        return [one for one in self.inputs if one[2].state == "differs"]

    @property
    def differing_outputs(self) -> list[tuple[Reading, Reading, Difference]]:
        return [one for one in self.outputs if one[2].state == "differs"]

    @property
    def has_other_arguments(self) -> bool:
        """Return whether the calls of one operator differ in arguments that are no tensors, or in dtypes."""
        ours, theirs = self.left.arguments, self.right.arguments
        return self.left.name == self.right.name and None not in (ours, theirs) and ours != theirs

    @property
    def input_state(self) -> InputState:
        if self.differing_inputs:
            return "differ"
        if any(not one.is_known for one in (*self.left.inputs, *self.right.inputs)):
            return "unknown"
        if len(self.left.inputs) != len(self.right.inputs) or any(d.state == "unknown" for *_, d in self.inputs):
            return "unknown"
        far, made = (max((d.relative or 0 for *_, d in of), default=0.0) for of in (self.inputs, self.outputs))
        return "agree" if far == 0 or made >= AMPLIFIED * far else "near"


def match(left: Sequence[Call], right: Sequence[Call], has_trace: bool) -> list[tuple[Call, Call]]:
    """Return the calls of both sides that are partners, in the order of the left side.

    If the sides differ, calls of one operator that read the same norms are partners in any order, because a compiler
    may reorder them. Between two of them, partners are found in the order of the calls."""
    forms = [[_form(call, has_trace) for call in side] for side in (left, right)]
    if forms[0] == forms[1]:
        return list(zip(left, right, strict=True))
    ours, theirs = ([n for n, call in enumerate(side) if call.operator not in VIEWS] for side in (left, right))
    fixed = _with_equal_inputs([(left[n], forms[0][n], n) for n in ours], [(right[n], forms[1][n], n) for n in theirs])
    found, taken = dict(fixed), {b for _, b in fixed}
    last = -1, -1
    for stop in [*fixed, (len(left), len(right))]:
        ours_here = _between(ours, last[0], stop[0])
        theirs_here = [n for n in _between(theirs, last[1], stop[1]) if n not in taken]
        here = [forms[0][n] for n in ours_here], [forms[1][n] for n in theirs_here]
        found |= {ours_here[a]: theirs_here[b] for a, b in _in_order(*here)}
        last = stop
    return [(left[a], right[b]) for a, b in sorted(found.items())]


def _in_order(left: list[Hashable], right: list[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of equal forms, in order. Of long lists, half of `MOST_CALLS` is decided at once."""
    a = b = 0
    while a < len(left) and b < len(right):
        rest = max(len(left) - a, len(right) - b)
        most = rest if rest <= MOST_CALLS else MOST_CALLS // 2
        pairs = longest_common_subsequence(left[a : a + MOST_CALLS], right[b : b + MOST_CALLS])
        decided = [pair for pair in pairs if max(pair) < most]
        yield from ((a + one, b + other) for one, other in decided)
        last = decided[-1] if decided else (most - 1, most - 1)
        a, b = (len(left), len(right)) if most == rest else (a + last[0] + 1, b + last[1] + 1)


def _between(places: list[int], low: int, high: int) -> list[int]:
    return places[bisect_right(places, low) : bisect_left(places, high)]


def _with_equal_inputs(
    left: Sequence[tuple[Call, Hashable, int]], right: Sequence[tuple[Call, Hashable, int]]
) -> list[tuple[int, int]]:
    """Return the places of the calls that have one form and read tensors with about the same norms."""
    waiting: defaultdict[Hashable, dict[int, Call]] = defaultdict(dict)
    by_norm: defaultdict[Hashable, list[tuple[float, int]]] = defaultdict(list)
    for call, form, place in right:
        waiting[form][place] = call
        if (norm := _first_norm(call)) is not None:
            insort(by_norm[form], (norm, place))
    found = []
    for call, form, place in left:
        others, norm, sorted_norms = waiting[form], _first_norm(call), by_norm[form]
        if norm is None or not sorted_norms:
            candidates = list(islice(others, MOST_TRIED))
        else:
            low, high = sorted((norm * (1 - 2 * _LIKELY), norm * (1 + 2 * _LIKELY)))
            near = sorted_norms[bisect_left(sorted_norms, (low, -1)) : bisect_right(sorted_norms, (high, sys.maxsize))]
            candidates = [one for _, one in near if one in others][:MOST_TRIED]
        best = min(
            ((far, one) for one in candidates if (far := _distance(call, others[one])) is not None), default=None
        )
        if best is not None:
            del others[best[1]]
            found.append((place, best[1]))
    return found


def _first_norm(call: Call) -> float | None:
    return next((one.norm for one in call.inputs if one.norm is not None and one.norm == one.norm), None)


def _distance(left: Call, right: Call) -> float | None:
    """Return the largest relative difference of the norms that two calls read; None if they may read other tensors."""
    read = [one for *_, one in _differences(left.inputs, right.inputs, _LIKELY)]
    if not read or any(one.state != "equal" for one in read):
        return None
    return max(one.relative or 0.0 for one in read)


def _form(call: Call, has_trace: bool) -> Hashable:
    """Return what partners have in common: the name of the operator, or of the kernel without its number, and the sizes
    of the tensors. Beside a trace only the results count, because a log of launches need not hold what they read."""
    name = call.operator.rstrip("0123456789")
    outputs = tuple(one.numel for one in call.outputs)
    return (name, outputs) if has_trace else (name, outputs, tuple(one.numel for one in call.inputs))


def compared_pairs(
    matched: Sequence[tuple[Call, Call]], alone: tuple[Sequence[Call], Sequence[Call]], tolerance: float | None
) -> Iterator[Pair]:
    """Compare what partners read and what they wrote. The calls that are `alone`, on the left and on the right side,
    have no partners."""
    ours, theirs = ([call.number for call in side if call.operator not in VIEWS] for side in alone)
    last = -1, -1
    for left, right in matched:
        lone = len(_between(ours, last[0], left.number)) + len(_between(theirs, last[1], right.number))
        last = left.number, right.number
        yield Pair(
            left, right, _differences(left.inputs, right.inputs, tolerance),
            _differences(left.outputs, right.outputs, tolerance), lone,
        )  # fmt: skip


def _differences(
    left: Sequence[Reading], right: Sequence[Reading], tolerance: float | None
) -> list[tuple[Reading, Reading, Difference]]:
    if len(left) != len(right):  # such as a constant that one side passes as a tensor
        return []
    return [(a, b, difference(a, b, tolerance)) for a, b in zip(left, right, strict=True)]
