"""Compares a buffer with float64 if its kernel computes in float32, and rounds to bfloat16 or float16 what it stores.

Eager code rounds the result of each operator. So what its errors explain hides a wrong factor of 1 + 2^-7, or a small
term that is wrong. With c the compiled value, r the one in float64, u the spacing of the dtype at 1, and s those in
float64 with rounded stores, and with inputs and values in between moved by half a unit of float32:

- element: |c - r| may be ONCE times u |r|, and `rule.ELEMENT` times what s explains in the element's row;
- mean: its root of the mean square may be MEAN times u times that of r, and `rule.MEAN` times what s explains;
- bias: the share of r in c - r may be ROUNDED times what rounding r makes of it, and the independent errors of all
  elements leave, and `rule.BIAS_LOW` times that in s - r.

Rounding makes half of u |r| at most, or half of the smallest number of the dtype, if that is more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, sqrt
from typing import Any

from stepscope.tracer.judge import rule

ONCE, MEAN, ROUNDED = 1.0, 0.6, 2.0
FLOAT32_SPACING = 2.0**-23


def compare(compiled: Any, eager: Any, double: Any, others: Callable[[], Sequence[Any]]) -> rule.Comparison | None:
    """Return the comparison with float64, or None where the wider rule has to decide.

    That is in finer dtypes, if values are NaN or infinite, and if eager code is off. `others` returns s, and is called
    only if r alone does not suffice.
    """
    import torch

    unit = float(torch.finfo(compiled.dtype).eps) if compiled.is_floating_point() else 0.0
    if unit < rule.LOW_PRECISION or not compiled.numel():
        return None
    found = _measured(compiled, eager, double, (), unit)
    if found is None or not found.broken:
        return found
    return _measured(compiled, eager, double, others(), unit)


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
    allowed = size * (ONCE * unit + rule.ELEMENT * FLOAT32_SPACING) + tiny
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
    share, rounded, *moved = (abs(one) / (of_r * of_r + 1e-300) for one in products)
    coarse = max(unit * of_r, tiny * unit * sqrt(count))
    mean = of_c / (rule.MEAN * of_explained + MEAN * coarse) if count >= rule.FEWEST else 0.0
    independent = coarse / ((of_r + 1e-300) * sqrt(count))
    bias = share / (ROUNDED * (rounded + independent) + rule.BIAS_LOW * max(moved, default=0.0))
    broken = tuple(name for name, one in (("element", element), ("mean", mean), ("bias", bias)) if one > 1.0)
    of_limit, how = max(element, mean, bias), "moved" if others else "float64"
    if not broken:
        return None if eager_off > rule.EAGER_OFF else rule.Comparison(how, of_limit)
    worst = int(ratios.flatten().argmax())
    at, bad = rule.position(worst, compiled.shape), int((ratios > 1.0).sum())
    c_at, e_at, r_at, limit = (float(one.flatten()[worst]) for one in (compiled, eager, double, allowed))
    return rule.Comparison(how, of_limit, broken, at, c_at, e_at, r_at, limit, bad)
