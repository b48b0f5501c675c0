"""Compares a buffer with float64 if its kernel computes in float32, and rounds to bfloat16 or float16 what it stores.

Eager code rounds the result of each operator. So what its errors explain hides a wrong factor of 1 + 2^-7, or a small
term that is wrong. With c the compiled value, r the one in float64, u the spacing of the dtype at 1, and s those in
float64 with rounded stores, and with inputs moved by half a unit of float32:

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


def differs(compiled: Any, eager: Any, double: Any, others: Callable[[], Sequence[Any]]) -> rule.Comparison | None:
    """Return how a buffer breaks the rule, or None if it does not, is of a finer dtype, or has NaN or infinities.

    `eager` is only shown; `others` returns s and is called only if r alone does not suffice.
    """
    import torch

    unit = float(torch.finfo(compiled.dtype).eps) if compiled.is_floating_point() else 0.0
    if unit < rule.LOW_PRECISION or not compiled.numel() or _broken(compiled, eager, double, (), unit) is None:
        return None
    return _broken(compiled, eager, double, others(), unit)


def _broken(compiled: Any, eager: Any, double: Any, others: Sequence[Any], unit: float) -> rule.Comparison | None:
    import torch

    c, r, count = compiled.double(), double.double(), compiled.numel()
    error, size, explained = c - r, r.abs(), torch.zeros_like(r)
    shares = [(error * r).sum(), ((r.to(compiled.dtype).double() - r) * r).sum()]
    for one in others:
        difference = one.double() - r
        explained = torch.maximum(explained, difference.abs())
        shares.append((difference * r).sum().abs())
    in_float32 = (rule.row_maximum(explained) + size * FLOAT32_SPACING).mul_(rule.ELEMENT)
    tiny = float(torch.finfo(compiled.dtype).tiny)
    allowed = in_float32 + size * (ONCE * unit) + tiny
    ratios = error.abs() / allowed
    norms = [torch.linalg.vector_norm(one) for one in (error, explained, r)]
    numbers = torch.stack([ratios.amax(), *norms, *shares]).tolist()
    if not isfinite(sum(numbers)):
        return None
    element, of_c, of_explained, of_r, *products = numbers
    share, rounded, *moved = (abs(one) / (of_r * of_r + 1e-300) for one in products)
    coarse = max(unit * of_r, tiny * unit * sqrt(count))
    mean = of_c / (rule.MEAN * of_explained + MEAN * coarse) if count >= rule.FEWEST else 0.0
    independent = coarse / ((of_r + 1e-300) * sqrt(count))
    bias = share / (ROUNDED * (rounded + independent) + rule.BIAS_LOW * max(moved, default=0.0))
    broken = tuple(name for name, one in (("element", element), ("mean", mean), ("bias", bias)) if one > 1.0)
    if not broken:
        return None
    worst = int(ratios.flatten().argmax())
    at, bad = rule.position(worst, compiled.shape), int((ratios > 1.0).sum())
    c_at, e_at, r_at, limit = (float(one.expand_as(c).flatten()[worst]) for one in (compiled, eager, double, allowed))
    return rule.Comparison("moved", max(element, mean, bias), broken, at, c_at, e_at, r_at, limit, bad)
