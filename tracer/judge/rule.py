"""Decides whether the contents of a buffer are right, given what PyTorch's own operators compute from the same inputs.

With c the compiled value, e the one of eager code in the same dtypes, r the one in float64, p the float64 values with
inputs moved by half a unit in the last place, and u the spacing of the coarsest dtype involved at 1:

- element: |c - r| may be ELEMENT times the error that rounding explains, which is the largest |e - r| or |p - r| of the
  element's row (last dimension), plus u |r|;
- mean: the root of the mean square of c - r may be MEAN times that of the explained errors plus 0.3 u times that of r,
  for buffers of at least FEWEST elements;
- bias: the share of r in c - r, which a wrong factor changes, may be BIAS times that in e - r and p - r, plus u by the
  square root of the number of elements;
- integers and booleans must be equal where eager, float64 and the moved values agree;
- a value that is not finite must not be so in eager and float64, unless float64 exceeds the dtype's range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any

ELEMENT = 8.0
ELEMENT_LOW = 4.0
"""Limit for bfloat16 and float16, whose rounding errors are less often large than those of long sums in float32."""
MEAN = 4.0
BIAS = 12.0
BIAS_LOW = 4.0
FEWEST = 64
"""Number of elements from which on their mean says something that the part of elements does not."""
LOW_PRECISION = 1e-4
EAGER_OFF = 64.0
"""Number of times by which eager code must exceed what explains its error, for the note that it is off."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of one buffer. Numbers that exceed 1 in `of_limit` break the rule."""

    how: str
    """``equal``: bit-equal to eager; ``near``: so near to eager that float64 cannot change the verdict; ``float64``;
    ``moved``: float64 with moved inputs."""
    of_limit: float = 0.0
    """Largest error as a multiple of what is allowed."""
    broken: tuple[str, ...] = ()
    """Parts of the rule that do not hold: ``element``, ``mean``, ``bias``, ``integer``, ``nonfinite``."""
    index: tuple[int, ...] = ()
    """Position of the worst element."""
    compiled: float | None = None
    eager: float | None = None
    double: float | None = None
    allowed: float | None = None
    """Allowed error of the worst element."""
    bad: int = 0
    """Number of elements that break the rule of elements."""
    eager_is_off: bool = False
    """Whether eager code is far from float64 although compiled code is not."""


def equal(compiled: Any, eager: Any) -> bool:
    """Return whether two tensors are equal, where two NaNs count as equal."""
    import torch

    if torch.equal(compiled, eager):
        return True
    if not (compiled.is_floating_point() or compiled.is_complex()):
        return False
    unequal = compiled != eager
    return bool((~unequal | (compiled.isnan() & eager.isnan())).all())


def near(compiled: Any, eager: Any, spacing: float) -> Comparison | None:
    """Return a verdict without float64 if no value of it could lead to another one, else None.

    By the triangle inequality |c - r| <= |c - e| + |e - r|, and what eager code is off itself counts as explained. So
    each part of the rule holds if c - e is within what it allows beside that.
    """
    import torch

    if not compiled.is_floating_point() or compiled.numel() == 0:
        return None
    unit = float(torch.finfo(compiled.dtype).eps)
    wide = torch.float32 if compiled.dtype in (torch.float16, torch.bfloat16) else compiled.dtype
    c, e = compiled.to(wide), eager.to(wide)
    difference = c - e
    limit = (ELEMENT if spacing < LOW_PRECISION else ELEMENT_LOW) - 1.0
    if not bool((difference.abs() <= e.abs() * (limit * unit)).all()):  # NaN and infinity are not near
        return None
    explained = unit * _norm(e)
    norm, share = _norm(difference), abs(_share(difference.double(), e.double()))
    most_bias = (BIAS if spacing < LOW_PRECISION else BIAS_LOW) - 2.0
    if norm > explained or share > most_bias * unit / sqrt(compiled.numel()):
        return None
    return Comparison("near", norm / (MEAN * explained) if explained else 0.0)


def compare(compiled: Any, eager: Any, double: Any, moved: Callable[[], Sequence[Any]], spacing: float) -> Comparison:
    """Compare a buffer with float64; `moved` computes the moved values, which are used only if they can matter."""
    if not (compiled.is_floating_point() or compiled.is_complex()):
        return _integers(compiled, eager, double, moved)
    if compiled.is_complex():
        import torch

        c, e, r = (torch.view_as_real(one.resolve_conj()) for one in (compiled, eager, double))
        return compare(c, e, r, lambda: [torch.view_as_real(one.resolve_conj()) for one in moved()], spacing)
    errors = _Errors(compiled, eager, double, spacing)
    first = errors.verdict([], "float64")
    if not first.broken or first.broken == ("nonfinite",):
        return first
    others = [one for one in moved() if one.shape == double.shape]
    return errors.verdict(others, "moved") if others else first


def _integers(compiled: Any, eager: Any, double: Any, moved: Callable[[], Sequence[Any]]) -> Comparison:
    """Compare integers where eager, float64 and the moved values agree; elsewhere rounding decides."""
    how, unequal = "float64", (compiled != eager) & (eager == double.to(eager.dtype))
    if bool(unequal.any()):
        others = [one for one in moved() if one.shape == double.shape]
        how = "moved" if others else how
        for one in others:
            unequal &= eager == one.to(eager.dtype)
    bad = int(unequal.sum())
    if not bad:
        return Comparison(how)
    index = _position(int(unequal.flatten().int().argmax()), compiled.shape)
    c, e, r = (float(one[index] if index else one) for one in (compiled, eager, double))
    return Comparison(how, inf, ("integer",), index, c, e, r, 0.0, bad)


@dataclass
class _Errors:
    """The errors of compiled and eager code against float64."""

    compiled: Any
    eager: Any
    double: Any
    spacing: float
    limit: float = field(init=False)

    def __post_init__(self) -> None:
        import torch

        self.limit = ELEMENT if self.spacing < LOW_PRECISION else ELEMENT_LOW
        self.dtype = self.compiled.dtype
        c, e, r = self.compiled.double(), self.eager.double(), self.double.double()
        finite_c, finite_e, finite_r = c.isfinite(), e.isfinite(), r.isfinite()
        self.fine = finite_c & finite_e & finite_r
        exceeds = r.abs() > torch.finfo(self.dtype).max
        self.new = ~finite_c & finite_e & finite_r & ~exceeds
        self.hidden = finite_c & ~finite_e & finite_r
        zero = torch.zeros((), dtype=torch.float64, device=c.device)
        self.reference = torch.where(self.fine, r, zero)
        self.of_c = torch.where(self.fine, (c - r).abs_(), zero)
        self.of_e = torch.where(self.fine, (e - r).abs_(), zero)
        self.share_c = _share(torch.where(self.fine, c - r, zero), self.reference)
        self.share_e = _share(torch.where(self.fine, e - r, zero), self.reference)

    def verdict(self, moved: Sequence[Any], how: str) -> Comparison:
        import torch

        if self.compiled.numel() == 0:
            return Comparison(how)
        explained, of_moved = self.of_e, 0.0
        for number, one in enumerate(moved):
            difference = torch.where(self.fine & one.isfinite(), one.double() - self.reference, 0.0)
            explained = torch.maximum(explained, difference.abs())
            if number == 0:  # the others are biased by construction
                of_moved = abs(_share(difference, self.reference))
        floor = self.reference.abs().mul_(self.spacing_of_output).add_(torch.finfo(self.dtype).tiny)
        allowed = (_row_maximum(explained) + floor).mul_(self.limit)
        ratios = self.of_c / allowed
        worst = int(ratios.argmax())
        element = float(ratios.flatten()[worst])
        rms = _norm(explained) + 0.3 * self.spacing_of_output * _norm(self.reference) + torch.finfo(self.dtype).tiny
        count = max(1, int(self.fine.sum()))
        mean = _norm(self.of_c) / (MEAN * rms) if count >= FEWEST else 0.0
        most_bias = BIAS if self.spacing < LOW_PRECISION else BIAS_LOW
        bias = abs(self.share_c) / (most_bias * (abs(self.share_e) + of_moved + self.spacing_of_output / sqrt(count)))
        broken = [name for name, one in (("element", element), ("mean", mean), ("bias", bias)) if one > 1.0]
        bad = int((ratios > 1.0).sum())
        if bool(self.new.any()):
            broken.append("nonfinite")
            worst, bad = int(self.new.flatten().int().argmax()), int(self.new.sum())
        off = self._eager_is_off(moved, ratios) if not broken else None
        of_limit = inf if "nonfinite" in broken else max(element, mean, bias)
        if off is not None:
            worst = off
        index = _position(worst, self.compiled.shape)
        c, e, r = (float(one.flatten()[worst]) for one in (self.compiled, self.eager, self.double))
        limit = float(allowed.expand_as(ratios).flatten()[worst])
        return Comparison(how, of_limit, tuple(broken), index, c, e, r, limit, bad, off is not None)

    @property
    def spacing_of_output(self) -> float:
        import torch

        return float(torch.finfo(self.dtype).eps)

    def _eager_is_off(self, moved: Sequence[Any], ratios: Any) -> int | None:
        """Return the element at which eager code is furthest off, or None if it is as near as it should be."""
        import torch

        if bool(self.hidden.any()):
            return int(self.hidden.flatten().int().argmax())
        explained = self.of_c
        for one in moved:
            explained = torch.maximum(explained, torch.where(self.fine, (one.double() - self.reference).abs(), 0.0))
        floor = _row_maximum(self.reference.abs()) * self.spacing
        found = self.of_e / ((_row_maximum(explained) + floor) * EAGER_OFF + torch.finfo(self.dtype).tiny)
        worst = int(found.argmax())
        return worst if float(found.flatten()[worst]) > 1.0 else None


def _row_maximum(values: Any) -> Any:
    if values.ndim and values.shape[-1] > 1:
        return values.amax(-1, keepdim=True)
    return values.amax()


def _norm(values: Any) -> float:
    import torch

    return float(torch.linalg.vector_norm(values, dtype=torch.float64))


def _share(difference: Any, reference: Any) -> float:
    """Return the factor by which the reference, in the least squares sense, is a part of the difference."""
    return float((difference * reference).sum()) / (float(reference.square().sum()) + 1e-300)


def _position(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    position: list[int] = []
    for size in reversed(shape):
        position.append(flat % size)
        flat //= size
    return tuple(reversed(position))
