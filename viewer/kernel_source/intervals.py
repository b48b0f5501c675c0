"""Arithmetic with ranges of integers, as the index expressions of a kernel need it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan

LANES, _DOWN = "lanes", "down"
HELD = "elements of "
"""Marks what was read from memory, before the name of a pointer."""


@dataclass(frozen=True)
class Interval:
    """The range of integers that an expression takes."""

    low: float
    high: float
    exact: bool = True
    """Whether the expression reaches both bounds."""
    step: float = 1
    """Stride between values; 0 if unknown."""
    varies_with: frozenset[str] = frozenset()
    base: str | None = None
    """Elements behind this pointer."""
    why: str | None = None
    """Why it is not known."""

    @property
    def is_one(self) -> bool:
        return self.low == self.high and self.why is None

    @property
    def read_from(self) -> frozenset[str]:
        """Pointers whose elements say how far it goes."""
        return frozenset(name.removeprefix(HELD) for name in self.varies_with if name.startswith(HELD))


def one(number: float) -> Interval:
    return Interval(number, number)


def unknown(why: str, base: str | None = None) -> Interval:
    return Interval(-inf, inf, False, 0, frozenset(), base, why)


def clipped(value: Interval, low: float, high: float) -> Interval:
    is_bounded = isfinite(low) and isfinite(high) and value.base is None
    if is_bounded and (value.why is not None or value.read_from):  # a mask bounds also what nobody knows
        return Interval(low, high, False, 0, frozenset({value.why or "masked"}))
    if value.why is not None:
        return value
    first, last, exact = value.low, value.high, value.exact
    if low > first:
        first = first + -(-(low - first) // value.step) * value.step if value.step and isfinite(first) else low
        exact = exact and bool(value.step)
    if high < last:
        last = first + (high - first) // value.step * value.step if value.step and isfinite(first) else high
        exact = exact and bool(value.step)
    return replace(value, low=first, high=last, exact=exact)


def binary(op: ast.operator, left: Interval, right: Interval) -> Interval:
    base = left.base or right.base
    why = left.why or right.why
    if why is not None:
        return unknown(why, base)
    if isinstance(op, ast.Add):
        return plus(left, right)
    if isinstance(op, ast.Sub):
        return plus(left, times(right, one(-1)))
    if base is not None:
        return unknown("a pointer is computed by what is not followed", base)
    if isinstance(op, ast.Mult):
        return times(left, right)
    if right.is_one and right.low > 0 and left.low >= 0:
        if isinstance(op, ast.FloorDiv):
            step = 1 if left.step == 1 else 0
            return replace(left, low=left.low // right.low, high=left.high // right.low, step=step)
        if isinstance(op, ast.Mod):
            if left.high < right.low:
                return left
            whole = left.exact and left.step == 1 and left.high - left.low + 1 >= right.low
            return replace(left, low=0, high=right.low - 1, exact=whole, step=1 if whole else 0)
    return unknown("it is computed by what is not followed")


def plus(left: Interval, right: Interval) -> Interval:
    if left.base is not None and right.base is not None:
        return unknown("two pointers are added", left.base)
    apart = not left.varies_with & right.varies_with and not _cancel(left, right)
    fine, coarse = sorted((left, right), key=lambda value: (value.is_one, value.step))
    reaches = coarse.is_one or (fine.step and coarse.step % fine.step == 0
                                and fine.high - fine.low + fine.step >= coarse.step)  # fmt: skip
    step = fine.step if apart and reaches and coarse.step else 0
    return _checked(left.low + right.low, left.high + right.high, left, right, apart, step)


def _cancel(left: Interval, right: Interval) -> bool:
    """Two ranges of lanes, one counted down: they may be the same lanes."""
    both = all(any(name.startswith(LANES) for name in side.varies_with) for side in (left, right))
    return both and (_DOWN in left.varies_with) != (_DOWN in right.varies_with)


def times(left: Interval, right: Interval) -> Interval:
    if left.base is not None or right.base is not None:
        return unknown("a pointer is computed by what is not followed", left.base or right.base)
    if left.why or right.why:
        return unknown(left.why or right.why or "")
    corners = [0 if 0 in (a, b) else a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    apart = not left.varies_with & right.varies_with
    factor, other = (left, right) if left.is_one else (right, left)
    step = abs(factor.low) * other.step if factor.is_one else 0
    found = _checked(min(corners), max(corners), left, right, apart, step)
    return replace(found, varies_with=found.varies_with ^ {_DOWN}) if factor.high < 0 else found


def _checked(low: float, high: float, left: Interval, right: Interval, apart: bool, step: float) -> Interval:
    if isnan(low) or isnan(high):
        return unknown("nothing bounds it")
    varies = left.varies_with | right.varies_with
    exact = left.exact and right.exact and apart
    return Interval(low, high, exact, 1 if low == high else step, varies, left.base or right.base)
