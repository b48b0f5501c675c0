"""Decides whether a result of compiled code differs from the eager one by more than rounding explains.

Float64 is the arbiter: the error of the compiled result is held against the error of the eager one, and against what
rounding errors of half an ulp after every operation do to the float64 result, which shows how well the numbers are
determined at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Verdict = Literal["equal", "agrees", "eager_is_off", "differs"]

FINE_EPS = 1e-4
ELEMENT_LIMIT, COARSE_ELEMENT_LIMIT = 8.0, 4.0
"""Multiples of the allowed error above which an element is wrong, for dtypes with an eps below FINE_EPS and others."""
WHOLE_LIMIT = 4.0
"""Multiple of the root mean square of the allowed error above which the whole tensor is wrong."""
OFF_FACTOR = 10.0
"""How much larger the eager error must be than the compiled one to be worth telling."""
_TINY = 1e-300


@dataclass(frozen=True)
class Judged:
    """The verdict about one tensor, with the worst element."""

    verdict: Verdict
    wrong: int = 0
    """Number of elements that are wrong; for ``eager_is_off``, of those that visibly differ."""
    index: tuple[int, ...] = ()
    compiled: Any = None
    eager: Any = None
    float64: Any = None
    allowed: float | None = None
    """Allowed error at the worst element, without the factor of the limit; None for integers."""
    compiled_error: float | None = None
    """Relative error of the whole tensor in the 2-norm, against float64."""
    eager_error: float | None = None
    rounding_error: float | None = None
    """The largest one of the perturbed runs."""


def judge(compiled: Tensor, eager: Tensor, float64: Tensor, perturbed: Sequence[Tensor], eps: float) -> Judged:
    """Judge tensors of one shape; `float64` and each of `perturbed` come from runs in float64.

    `eps` is the largest eps of a dtype of the computation.
    """
    if same_bits(compiled, eager):
        return Judged("equal")
    if compiled.is_complex():
        float64, *perturbed = (torch.view_as_real(one.to(torch.complex128)) for one in (float64, *perturbed))
        found = _floats(torch.view_as_real(compiled), torch.view_as_real(eager), float64, perturbed, eps)
    elif compiled.is_floating_point():
        found = _floats(compiled, eager, float64, perturbed, eps)
    else:
        found = _integers(compiled, eager, float64, perturbed)
    return found


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether all elements are equal; NaN equals NaN."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if torch.equal(one, other):
        return True
    if not (one.is_floating_point() or one.is_complex()):
        return False
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _integers(compiled: Tensor, eager: Tensor, float64: Tensor, perturbed: Sequence[Tensor]) -> Judged:
    """Count the elements that rounding does not decide: there eager, float64 and all perturbed runs agree."""
    solid = eager == float64
    for one in perturbed:
        solid = solid & (eager == one)
    bad = (compiled != eager) & solid
    return _judged(bad, bad.double(), compiled, eager, float64, None) if bad.any() else Judged("agrees")


def _floats(compiled: Tensor, eager: Tensor, float64: Tensor, perturbed: Sequence[Tensor], eps: float) -> Judged:
    c, e, r = (one.detach().double() for one in (compiled, eager, float64))
    ps = [one.detach().double() for one in perturbed]
    same = (c == e) | (c.isnan() & e.isnan())
    finite = c.isfinite() & r.isfinite()
    error = torch.where(finite, c - r, 0).abs()
    eager_error = torch.where(e.isfinite() & r.isfinite(), e - r, 0).abs()
    spread, rounding = eager_error, None
    size = torch.where(r.isfinite(), r, 0).abs()
    for p in ps:
        by_rounding = torch.where(p.isfinite() & r.isfinite(), p - r, 0).abs()
        spread, rounding = torch.maximum(spread, by_rounding), max(rounding or 0.0, _relative(by_rounding, size))
    allowed = _row_maximum(spread) + eps * size + eps * _row_rms(size) + _smallest(compiled.dtype)
    limit = ELEMENT_LIMIT if eps < FINE_EPS else COARSE_ELEMENT_LIMIT
    ratio = error / allowed
    bad = ~same & (_non_finite(c, e, r, ps, compiled.dtype) | (finite & (ratio > limit)))
    if not bad.any():
        whole = _rms(error) / (_rms(spread) + 0.3 * eps * _rms(size) + _TINY)
        if whole > WHOLE_LIMIT:
            bad = ~same & finite & (error > WHOLE_LIMIT * torch.maximum(spread, eps * size))
    errors = _relative(error, size), _relative(eager_error, size), rounding
    if bad.any():
        weight = torch.where(bad, torch.where(finite, ratio, torch.inf), -1.0)
        return _judged(bad, weight, compiled, eager, float64, allowed, errors)
    visible = ~_close(c, e, compiled.dtype) & finite
    is_off = bool((visible & ~e.isfinite()).any()) or errors[1] > OFF_FACTOR * max(errors[0], eps)
    if visible.any() and is_off:
        weight = torch.where(visible, torch.where(e.isfinite(), eager_error, torch.inf), -1.0)
        return _judged(visible, weight, compiled, eager, float64, allowed, errors, "eager_is_off")
    return Judged("agrees", 0, (), None, None, None, None, *errors)


def _non_finite(c: Tensor, e: Tensor, r: Tensor, ps: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return where compiled code made or hid NaN or infinity although float64 says otherwise."""
    calm = r.isfinite()
    for p in ps:
        calm = calm & (p.isfinite() == r.isfinite())
    made = ~c.isfinite() & e.isfinite() & r.isfinite() & (r.abs() < torch.finfo(dtype).max / 2) & calm
    hidden = c.isfinite() & ~e.isfinite() & ~r.isfinite()
    other = ~c.isfinite() & ~e.isfinite() & ~r.isfinite() & (e.isnan() == r.isnan()) & (c.isnan() != r.isnan())
    sign = c.isinf() & e.isinf() & r.isinf() & (e == r) & (c != r)
    return made | hidden | other | sign


def _judged(
    bad: Tensor,
    weight: Tensor,
    compiled: Tensor,
    eager: Tensor,
    float64: Tensor,
    allowed: Tensor | None,
    errors: tuple[float | None, float | None, float | None] = (None, None, None),
    verdict: Verdict = "differs",
) -> Judged:
    worst = int(weight.flatten().argmax())
    index: list[int] = []
    left = worst
    for size in reversed(bad.shape):
        index.insert(0, left % size)
        left //= size
    ours, theirs, right = (one.detach().reshape(-1)[worst].item() for one in (compiled, eager, float64))
    permitted = None if allowed is None else float(allowed.flatten()[worst])
    return Judged(verdict, int(bad.sum()), tuple(index), ours, theirs, right, permitted, *errors)


def _row_maximum(value: Tensor) -> Tensor:
    return value.amax(-1, keepdim=True) if value.dim() and value.numel() else value


def _row_rms(value: Tensor) -> Tensor:
    return value.square().mean(-1, keepdim=True).sqrt() if value.dim() and value.numel() else value


def _rms(value: Tensor) -> float:
    return float(value.square().mean().sqrt()) if value.numel() else 0.0


def _relative(error: Tensor, size: Tensor) -> float:
    return _rms(error) / (_rms(size) + _TINY)


def _smallest(dtype: torch.dtype) -> float:
    """Return the smallest normal number: results below it may be flushed to zero."""
    return float(torch.finfo(dtype).tiny)


def _close(c: Tensor, e: Tensor, dtype: torch.dtype) -> Tensor:
    """Return where two results look equal, by the tolerances of `torch.testing.assert_close`."""
    rtol = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7}.get(dtype, 1.3e-6)
    return torch.isclose(c, e, rtol=rtol, atol=1e-5, equal_nan=True)
