"""Compares a buffer with float64 if its kernel computes in float32, and rounds to bfloat16 or float16 what it stores.

Eager code rounds the result of each operator. So what its errors explain hides a wrong factor of 1 + 2^-7, or a small
term that is wrong. With c the compiled value, r the one in float64, u the spacing of the dtype at 1, and s those in
float64 with rounded stores, with inputs and values in between moved by half a unit of float32, and with sums as plain
loops compute them:

- element: |c - r| may be ONCE times u |r|, and `rule.ELEMENT` times what s explains in the element's row;
- mean: its root of the mean square may be MEAN times u times that of r, and `rule.MEAN` times what s explains;
- bias: the share of r in c - r may be ROUNDED times what rounding r makes of it, and the independent errors of all
  elements leave, and `rule.BIAS_LOW` times that in s - r.

Rounding makes half of u |r| at most, or half of the smallest number of the dtype, if that is more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, sqrt
from typing import Any, NamedTuple

from stepscope.tracer.judge import rule

ONCE, MEAN, ROUNDED = 1.0, 0.6, 2.0
FLOAT32_SPACING = 2.0**-23
ALL = 2 + rule.FEW
"""Number of values s at most: moved, with rounded stores, and with sums and functions as in kernels."""


def compare(compiled: Any, eager: Any, double: Any, others: Callable[[int], Sequence[Any]]) -> rule.Comparison | None:
    """Return the comparison with float64, or None where the wider rule has to decide.

    That is in finer dtypes, if values are NaN or infinite, and if eager code is off. `others` returns as many
    of s as it is asked for. It is called only if r alone does not suffice, and for all of them only if one does not, as
    each of them widens what is allowed.
    """
    import torch

    unit = float(torch.finfo(compiled.dtype).eps) if compiled.is_floating_point() else 0.0
    if unit < rule.LOW_PRECISION or not compiled.numel():
        return None
    tiny = float(torch.finfo(compiled.dtype).tiny)
    numbers = rule.measured_by_kernel(compiled, eager, double, 0.0, _share(unit), tiny, 1.0, unit, tiny)
    if numbers is None:
        found = _measured(compiled, eager, double, (), unit)
    elif isfinite(sum(numbers)):
        products = numbers.error_by_r, numbers.rounding_by_r
        norms = sqrt(numbers.error), sqrt(numbers.r), 0.0
        limits = _limits(numbers.ratio, *norms, products, compiled.numel(), unit, tiny)
        found = _told(limits, numbers.off, "float64")
    else:
        found = None
    for count in (1, ALL):
        if found is None or not found.broken:
            break
        found = _measured(compiled, eager, double, others(count), unit)
    return found


def _share(unit: float) -> float:
    """Return how much an element may be off as a share of the reference."""
    return ONCE * unit + rule.ELEMENT * FLOAT32_SPACING


class _Limits(NamedTuple):
    """The parts of the rule, as multiples of what is allowed."""

    element: float
    mean: float
    bias: float

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(name for name, one in zip(self._fields, self, strict=True) if one > 1.0)


def _limits(
    element: float, of_c: float, of_r: float, of_explained: float, products: Sequence[float], count: int, unit: float,
    tiny: float,
) -> _Limits:  # fmt: skip
    """Return the parts of the rule, given the norms, and the products with r of c - r, of what rounding makes of r, and
    of s - r."""
    share, rounded, *moved = (abs(one) / (of_r * of_r + 1e-300) for one in products)
    coarse = max(unit * of_r, tiny * unit * sqrt(count))
    mean = of_c / (rule.MEAN * of_explained + MEAN * coarse) if count >= rule.FEWEST else 0.0
    independent = coarse / ((of_r + 1e-300) * sqrt(count))
    return _Limits(element, mean, share / (ROUNDED * (rounded + independent) + rule.BIAS_LOW * max(moved, default=0.0)))


def _told(limits: _Limits, eager_off: float, how: str) -> rule.Comparison | None:
    if limits.broken:
        return rule.Comparison(how, max(limits), limits.broken)
    return None if eager_off > rule.EAGER_OFF else rule.Comparison(how, max(limits))


def _measured(compiled: Any, eager: Any, double: Any, others: Sequence[Any], unit: float) -> rule.Comparison | None:
    import torch

    r, count, tiny = double.double(), compiled.numel(), float(torch.finfo(compiled.dtype).tiny)
    error = compiled - r
    absolute, size = error.abs(), r.abs()
    explained = None
    shares = [(error * r).sum(), ((r.to(compiled.dtype) - r) * r).sum()]
    for one in others:
        difference = one.double() - r
        explained = difference.abs() if explained is None else torch.maximum(explained, difference.abs())
        shares.append((difference * r).sum().abs())
    allowed = size * _share(unit) + tiny
    if explained is not None:
        allowed += rule.row_maximum(explained) * rule.ELEMENT
    ratios = absolute / allowed
    off = (eager - r).abs() / (rule.row_maximum(absolute) + rule.row_maximum(size) * unit + tiny)
    norms = [torch.linalg.vector_norm(one) for one in (error, r, explained) if one is not None]
    numbers = torch.stack([ratios.amax(), off.amax(), *shares, *norms]).tolist()
    if not isfinite(sum(numbers)):
        return None
    of_explained = 0.0 if explained is None else numbers.pop()
    element, eager_off, *products, of_c, of_r = numbers
    limits = _limits(element, of_c, of_r, of_explained, products, count, unit, tiny)
    how = "moved" if others else "float64"
    if not limits.broken:
        return _told(limits, eager_off, how)
    worst = int(ratios.flatten().argmax())
    at, bad = rule.position(worst, compiled.shape), int((ratios > 1.0).sum())
    c_at, e_at, r_at, limit = (float(one.flatten()[worst]) for one in (compiled, eager, double, allowed))
    return rule.Comparison(how, max(limits), limits.broken, at, c_at, e_at, r_at, limit, bad)
