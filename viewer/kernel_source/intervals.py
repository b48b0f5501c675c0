"""Interval arithmetic on integers for the index expressions of kernels."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan

Source = tuple[str, float, float]
"""What an expression varies with: the digits of a variable from one place value up to another."""
LANES, CONTENTS, _DOWN = "lanes ", "contents of ", ("down", 1, inf)


@dataclass(frozen=True)
class Interval:
    """The range of integers that an expression takes."""

    low: float
    high: float
    exact: bool = True
    """Whether the expression reaches both bounds."""
    step: float = 1
    """Stride between values; 0 if unknown."""
    varies_with: frozenset[Source] = frozenset()
    base: str | None = None
    """Pointer that the expression is an address behind."""
    why: str | None = None
    """Reason why the range is not known."""

    @property
    def is_one(self) -> bool:
        return self.low == self.high and self.why is None

    @property
    def read_from(self) -> frozenset[str]:
        """Pointers whose contents bound it."""
        names = (name for name, *_ in self.varies_with)
        return frozenset(name.removeprefix(CONTENTS) for name in names if name.startswith(CONTENTS))


def one(number: float) -> Interval:
    return Interval(number, number)


def counted(count: float, name: str) -> Interval:
    """Return the range of a variable that counts from 0, `count` infinite if it is not known."""
    return one(0) if count == 1 else Interval(0, count - 1, isfinite(count), 1, varying(name))


def varying(name: str) -> frozenset[Source]:
    return frozenset({(name, 1, inf)})


def contents(pointer: str, low: int, high: int) -> Interval:
    """Return the range of an element that is read from memory."""
    return Interval(low, high, False, 0, varying(CONTENTS + pointer))


def unknown(why: str, base: str | None = None) -> Interval:
    return Interval(-inf, inf, False, 0, frozenset(), base, why)


def clipped(value: Interval, low: float, high: float) -> Interval:
    is_bounded = isfinite(low) and isfinite(high) and value.base is None
    if is_bounded and (value.why is not None or value.read_from):  # a mask bounds also what nobody knows
        return Interval(low, high, False, 0, varying(value.why or "masked"))
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


def turns(first: Interval, end: Interval, step: Interval, name: str) -> Interval:
    """Return the range of the variable of a loop from `first` up to, without, `end`."""
    why = first.why or end.why or step.why
    if why is not None or not step.is_one or step.low <= 0:
        return unknown(why or "it depends on a loop that is not followed")
    names = first.varies_with | end.varies_with | varying(name)
    if first.is_one and end.is_one and first.low < end.low:
        last = first.low + (end.low - 1 - first.low) // step.low * step.low
        exact = first.exact and end.exact
        return one(last) if exact and last == first.low else Interval(first.low, last, exact, step.low, names)
    return Interval(first.low, end.high - 1, False, 0, names)


def union(left: Interval, right: Interval) -> Interval:
    """Return the range of an expression that is one of two others. An empty one is never chosen."""
    if left.low > left.high or right.low > right.high:
        return right if left.low > left.high else left
    if left.why or right.why or left.base != right.base:
        return unknown(left.why or right.why or "a pointer is chosen from several", left.base or right.base)
    low, high = min(left.low, right.low), max(left.high, right.high)
    return Interval(low, high, False, 0, left.varies_with | right.varies_with, left.base)


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
        return unknown("a pointer is computed in a way that is not followed", base)
    if isinstance(op, ast.Mult):
        return times(left, right)
    if right.is_one and right.low > 0 and left.low >= 0 and isinstance(op, (ast.FloorDiv, ast.Mod)):
        return _quotient(left, right.low) if isinstance(op, ast.FloorDiv) else _remainder(left, right.low)
    return unknown("it is computed in a way that is not followed")


def _quotient(value: Interval, divisor: float) -> Interval:
    step = 1 if value.step == 1 else 0
    digits = _digits(value, divisor)
    varies = value.varies_with if digits is None else frozenset({(digits[0], digits[1] * divisor, digits[2])})
    return replace(value, low=value.low // divisor, high=value.high // divisor, step=step, varies_with=varies)


def _remainder(value: Interval, divisor: float) -> Interval:
    if value.high < divisor:
        return value
    whole = value.exact and value.step == 1 and value.high - value.low + 1 >= divisor
    digits = _digits(value, divisor)
    varies = value.varies_with if digits is None else frozenset({(digits[0], digits[1], digits[1] * divisor)})
    return replace(value, low=0, high=divisor - 1, exact=whole, step=1 if whole else 0, varies_with=varies)


def _digits(value: Interval, divisor: float) -> Source | None:
    """Return the digits that `value` is, if its quotient and its remainder take all pairs of values."""
    is_counted = value.exact and value.step == 1 and value.low == 0 and (value.high + 1) % divisor == 0
    return next(iter(value.varies_with)) if is_counted and len(value.varies_with) == 1 else None


def plus(left: Interval, right: Interval) -> Interval:
    if left.base is not None and right.base is not None:
        return unknown("two pointers are added")
    is_apart = apart(left, right) and not _cancel(left, right)
    fine, coarse = sorted((left, right), key=lambda value: (value.is_one, value.step))
    reaches = coarse.is_one or (fine.step and coarse.step % fine.step == 0
                                and fine.high - fine.low + fine.step >= coarse.step)  # fmt: skip
    step = fine.step if is_apart and reaches and coarse.step else 0
    return _checked(left.low + right.low, left.high + right.high, left, right, is_apart, step)


def apart(left: Interval, right: Interval) -> bool:
    """Return whether the two vary independently of each other."""
    pairs = ((a, b) for a in left.varies_with for b in right.varies_with)
    return not any(a[0] == b[0] and max(a[1], b[1]) < min(a[2], b[2]) for a, b in pairs)


def _cancel(left: Interval, right: Interval) -> bool:
    """Return whether two ranges of lanes, one of which is counted down, may be the same lanes."""
    both = all(any(name.startswith(LANES) for name, *_ in side.varies_with) for side in (left, right))
    return both and (_DOWN in left.varies_with) != (_DOWN in right.varies_with)


def times(left: Interval, right: Interval) -> Interval:
    if left.base is not None or right.base is not None:
        return unknown("a pointer is computed in a way that is not followed", left.base or right.base)
    if left.why or right.why:
        return unknown(left.why or right.why or "")
    corners = [0 if 0 in (a, b) else a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    is_apart = apart(left, right)
    factor, other = (left, right) if left.is_one else (right, left)
    step = abs(factor.low) * other.step if factor.is_one else 0
    found = _checked(min(corners), max(corners), left, right, is_apart, step)
    return replace(found, varies_with=found.varies_with ^ {_DOWN}) if factor.high < 0 else found


def _checked(low: float, high: float, left: Interval, right: Interval, is_apart: bool, step: float) -> Interval:
    if isnan(low) or isnan(high):
        return unknown("nothing bounds it")
    varies = left.varies_with | right.varies_with
    exact = left.exact and right.exact and is_apart
    return Interval(low, high, exact, 1 if low == high else step, varies, left.base or right.base)
