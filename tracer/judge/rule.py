"""Decides whether the contents of a buffer are right, given what PyTorch's own operators compute from the same inputs.

With c the compiled value, e the one of eager code in the same dtypes, r the one in float64, p the float64 values with
inputs moved by half a unit in the last place, and u the spacing of the coarsest dtype involved at 1:

- element: |c - r| may be ELEMENT times the error that rounding explains, which is the largest |e - r| or |p - r| of the
  element's row (last dimension), plus u |r|;
- mean: the root of the mean square of c - r may be MEAN times that of the explained errors plus 0.3 u times that of r,
  for buffers of at least FEWEST elements;
- bias: the share of r in c - r, which a wrong factor changes, may be BIAS times that in e - r and p - r, plus what
  independent errors leave of it: the larger of u and their relative size, by the square root of the number of elements;
- integers and booleans must be equal where eager, float64 and the moved values agree. Among these are values that
  are moved DECIDED times as far, since that much error is allowed to numbers on which a decision depends;
- elements on which a decision depends that moves of DECIDED times the distance change, as that of `round` or of a
  comparison, are left out if the others hold;
- a value must be finite where eager, float64 and the moved values are, and where these are not finite it must be NaN,
  or the infinity that they are. A number of float64 that exceeds the dtype's range counts as infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple

ELEMENT = 8.0
ELEMENT_LOW = 4.0
"""Limit for bfloat16 and float16, whose rounding errors are less often large than those of long sums in float32."""
MEAN = 4.0
BIAS = 12.0
BIAS_LOW = 4.0
FEWEST = 64
"""Number of elements from which on their mean says something that the part of elements does not."""
LOW_PRECISION = 1e-4
DECIDED = 8.0
"""Multiple of the distance of moved inputs at which a decision that stays the same is not one of rounding."""
FEW, MANY = 3, 8
"""Numbers of moved values: those that numbers need, and those that decisions and values that are not finite need."""
EAGER_OFF = 64.0
"""Number of times by which eager code must exceed what explains its error, for the note that it is off."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of one buffer. Numbers that exceed 1 in `of_limit` break the rule."""

    how: str
    """``equal``: bit-equal to eager; ``near``: so near to eager that float64 cannot change the verdict; ``float64``;
    ``moved``: float64 with moved inputs; ``in_order``: sums of plain loops as well."""
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
    return bool(compiled.isnan().any()) and bool(are_same(compiled, eager).all())


def near(compiled: Any, eager: Any, spacing: float) -> Comparison | None:
    """Return a verdict without float64 if no value of it could lead to another one, else None.

    By the triangle inequality |c - r| <= |c - e| + |e - r|, and what eager code is off itself counts as explained. So
    each part of the rule holds if c - e is within what it allows beside that.
    """
    import torch

    if not compiled.is_floating_point() or compiled.numel() == 0:
        return None
    most, most_bias = (ELEMENT, BIAS) if spacing < LOW_PRECISION else (ELEMENT_LOW, BIAS_LOW)
    unit = float(torch.finfo(compiled.dtype).eps)
    difference = compiled.double() - eager
    excess = torch.add(difference.abs(), eager.abs(), alpha=(1.0 - most) * unit).amax()
    norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in (difference, eager)]
    found = torch.stack([excess, *norms, (difference * eager).sum()]).tolist()
    largest, norm, of_e, product = found
    explained, share = unit * of_e, abs(product) / (of_e * of_e + 1e-300)
    if not isfinite(sum(found)) or largest > 0.0:  # NaN and infinity are not near
        return None
    if norm > explained or share > (most_bias - 2.0) * unit / sqrt(compiled.numel()):
        return None
    return Comparison("near", norm / (MEAN * explained) if explained else 0.0)


Moved = Callable[[int], Sequence[Any]]
"""Returns as many moved values as it is asked for, or fewer if there are no more."""


InOrder = Callable[[], Any]
"""Returns the value whose sums are those of plain loops, or None if there are none in it."""


def compare(
    compiled: Any, eager: Any, double: Any, moved: Moved, spacing: float, in_order: InOrder = lambda: None
) -> Comparison:
    """Compare a buffer with float64; `moved` and `in_order` are called only if their values can matter."""
    if not (compiled.is_floating_point() or compiled.is_complex()):
        return _integers(compiled, eager, double, moved)
    if compiled.is_complex():
        import torch

        c, e, r = (torch.view_as_real(one.resolve_conj()) for one in (compiled, eager, double))
        return compare(c, e, r, lambda count: [torch.view_as_real(one.resolve_conj()) for one in moved(count)], spacing)
    found = _at_once(compiled, eager, double, spacing)
    if found is not None:
        return found
    errors = _Errors(compiled, eager, double, spacing)
    found = errors.verdict([], "float64")
    if not found.broken and not found.eager_is_off:
        return found
    wanted = MANY if "nonfinite" in found.broken else FEW
    others = [one for one in moved(wanted) if one.shape == double.shape]
    if others:
        found = errors.verdict(others, "moved")
    looped = in_order() if found.broken and "nonfinite" not in found.broken else None
    return found if looped is None else errors.verdict(others, "in_order", looped)


def measured_by_kernel(compiled: Any, eager: Any, double: Any, *weights: float) -> Any:
    """Return what `cuda_errors.measured` does with these `Weights`; None where that cannot be."""
    if not compiled.is_cuda:
        return None
    try:
        from stepscope.tracer.judge import cuda_errors
    except ImportError:
        return None
    return cuda_errors.measured(compiled, eager, double, cuda_errors.Weights(*weights))


def _at_once(compiled: Any, eager: Any, double: Any, spacing: float) -> Comparison | None:
    """Return the comparison of a buffer on a GPU that is right and of which eager code is not off, else None."""
    import torch

    about, limit = torch.finfo(compiled.dtype), limit_of(spacing)
    unit, tiny = float(about.eps), float(about.tiny)
    weights = limit, limit * unit, limit * tiny, EAGER_OFF, EAGER_OFF * spacing, tiny
    found = measured_by_kernel(compiled, eager, double, *weights)
    if found is None or not isfinite(sum(found)) or found.off > 1.0:
        return None
    norms = sqrt(found.error), sqrt(found.eager), sqrt(found.r)
    parts = _parts(found.ratio, *norms, found.error_by_r, (found.eager_by_r,), compiled.numel(), unit, tiny, spacing)
    return None if any(one > 1.0 for one in parts) else Comparison("float64", max(parts))


def limit_of(spacing: float) -> float:
    return ELEMENT if spacing < LOW_PRECISION else ELEMENT_LOW


def _parts(
    element: float, of_c: float, explained: float, of_r: float, share: float, shares: Sequence[float], count: int,
    unit: float, tiny: float, spacing: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Return the parts of the rule as multiples of what is allowed: element, mean and bias.

    The norms are those of c - r, of what is explained and of r; the products are those of c - r, and of what explains
    it, with r.
    """
    square = of_r * of_r + 1e-300
    mean = of_c / (MEAN * (explained + 0.3 * unit * of_r + tiny)) if count >= FEWEST else 0.0
    most_bias = BIAS if spacing < LOW_PRECISION else BIAS_LOW
    independent = max(unit, explained / (of_r + 1e-300)) / sqrt(count)
    allowed = most_bias * (sum(abs(one / square) for one in shares) + independent)
    return element, mean, abs(share / square) / allowed


def _integers(compiled: Any, eager: Any, double: Any, moved: Moved) -> Comparison:
    """Compare integers where eager, float64 and the moved values agree; elsewhere rounding decides."""
    how, unequal = "float64", (compiled != eager) & (eager == double.to(eager.dtype))
    if bool(unequal.any()):
        others = [one for one in moved(MANY) if one.shape == double.shape]
        how = "moved" if others else how
        for one in others:
            unequal &= eager == one.to(eager.dtype)
    bad = int(unequal.sum())
    if not bad:
        return Comparison(how)
    index = position(int(unequal.flatten().int().argmax()), compiled.shape)
    c, e, r = (float(one[index] if index else one) for one in (compiled, eager, double))
    return Comparison(how, inf, ("integer",), index, c, e, r, 0.0, bad)


def undecided(double: Any, near: Sequence[Any], far: Iterable[Any], dtype: Any) -> Any:
    """Return where a buffer of a dtype depends on a decision that rounding may change.

    There the values `far`, with inputs that are moved DECIDED times as far as those of `near`, jump. What is no tensor
    of the same size tells nothing.
    """
    import torch

    found = torch.zeros_like(double, dtype=torch.bool)
    far = (one for one in far if getattr(one, "shape", None) == double.shape)
    if not dtype.is_floating_point:
        for one in far:
            found |= one.to(dtype) != double.to(dtype)
        return found
    about, explained = torch.finfo(dtype), torch.zeros_like(double)
    for one in (one for one in near if one.shape == double.shape):
        explained = torch.maximum(explained, (one - double).abs().nan_to_num(0.0, 0.0))
    allowed = (row_maximum(explained) + double.abs() * about.eps) * (2 * DECIDED) + about.tiny
    for one in far:
        found |= ~((one - double).abs() <= allowed) & ~are_same(one, double)
    return found


class _Measured(NamedTuple):
    """What one comparison with float64 measures."""

    scalars: list[float]
    """The largest ratio; the norms of the error, of what is explained, and of the reference; the products with the
    reference of the errors of compiled and eager code and of the moved value; the largest of `off`."""
    ratios: Any
    """Errors as multiples of what is allowed."""
    allowed: Any
    off: Any
    """Errors of eager code as multiples of those from which on it is off."""


class _Errors:
    """The errors of compiled and eager code against float64.

    Scalars leave the device together, since each time takes as long as several operations.
    """

    def __init__(self, compiled: Any, eager: Any, double: Any, spacing: float) -> None:
        import torch

        self.values = compiled, eager, double
        self.spacing = spacing
        self.limit = limit_of(spacing)
        self.about = torch.finfo(compiled.dtype)
        self.count = compiled.numel()
        self.fine: Any = None
        """Where all values are finite; None if they are everywhere."""
        self.strange: Any = None
        """Where compiled code is finite or not although eager code and float64 say otherwise; None if nowhere."""
        self.hidden: Any = None
        self.c, self.e, self.r = compiled.double(), eager.double(), double.double()

    def verdict(self, moved: Sequence[Any], how: str, looped: Any = None) -> Comparison:
        if self.count == 0:
            return Comparison(how)
        found = self._measured(moved[:FEW], looped)
        if not isfinite(sum(found.scalars)) and self.fine is None:
            self._set_apart()
            found = self._measured(moved[:FEW], looped)
        element, of_c, explained, of_r, share_c, share_e, of_moved, off = found.scalars
        count = max(1, self.count if self.fine is None else int(self.fine.sum()))
        unit, tiny = float(self.about.eps), float(self.about.tiny)
        shares = share_e, of_moved
        parts = _parts(element, of_c, explained, of_r, share_c, shares, count, unit, tiny, self.spacing)
        broken = [name for name, one in zip(("element", "mean", "bias"), parts, strict=True) if one > 1.0]
        strange = self._still_strange(moved)
        if strange is not None:
            return self._told(how, inf, (*broken, "nonfinite"), strange, found, strange)
        of_limit = max(parts)
        if broken:
            return self._told(how, of_limit, tuple(broken), found.ratios, found, found.ratios > 1.0)
        if self.hidden is not None:
            return self._told(how, of_limit, (), self.hidden, found)
        return self._told(how, of_limit, (), found.off, found) if off > 1.0 else Comparison(how, of_limit)

    def _told(
        self, how: str, of_limit: float, broken: tuple[str, ...], weight: Any, found: _Measured, bad: Any = None
    ) -> Comparison:
        """Return the comparison with the element that has the largest weight, at which eager is off if none is bad."""
        worst = int(weight.flatten().to("cpu").double().argmax())
        c, e, r = (float(one.flatten()[worst]) for one in self.values)
        allowed = float(found.allowed.expand_as(found.ratios).flatten()[worst])
        wrong = int(bad.sum()) if bad is not None else 0
        index = position(worst, self.values[0].shape)
        return Comparison(how, of_limit, broken, index, c, e, r, allowed, wrong, not broken)

    def _measured(self, moved: Sequence[Any], looped: Any) -> _Measured:
        import torch

        of_c, of_e = self.c - self.r, self.e - self.r
        size, absolute, of_eager = self.r.abs(), of_c.abs(), of_e.abs()
        explained, beside, share = of_eager, absolute, torch.zeros_like(self.r[(0,) * self.r.ndim])
        for number, one in enumerate((*moved, looped) if looped is not None else moved):
            difference = one.double() - self.r
            if self.fine is not None:
                difference = torch.where(self.fine & difference.isfinite(), difference, 0.0)
            if number == 0 or one is looped:  # the others are biased by construction
                share = torch.maximum(share, (difference * self.r).sum().abs())
            difference = difference.abs()
            explained, beside = torch.maximum(explained, difference), torch.maximum(beside, difference)
        tiny = float(self.about.tiny)
        allowed = (row_maximum(explained) + (size * float(self.about.eps)).add_(tiny)).mul_(self.limit)
        ratios = absolute / allowed
        off = of_eager / (row_maximum(beside) + row_maximum(size) * self.spacing).mul_(EAGER_OFF).add_(tiny)
        norms = [torch.linalg.vector_norm(one) for one in (of_c, explained, self.r)]
        shares = [(one * self.r).sum() for one in (of_c, of_e)]
        scalars = torch.stack([ratios.amax(), *norms, *shares, share, off.amax()])
        return _Measured(scalars.tolist(), ratios, allowed, off)

    def _set_apart(self) -> None:
        """Look at values that are not finite by themselves, and take zeros for them in what is measured."""
        import torch

        c, e, r = self.c, self.e, self.r
        self.fine = c.isfinite() & e.isfinite() & r.isfinite()
        self.strange = self._strange(c, e, r)
        hidden = c.isfinite() & ~e.isfinite() & r.isfinite()
        if self.strange is None and bool(hidden.any()):
            self.hidden = hidden
        self.c, self.e, self.r = (torch.where(self.fine, one, 0.0) for one in (c, e, r))

    def _strange(self, c: Any, e: Any, r: Any) -> Any:
        """Return where c is of another kind than e and r: finite, NaN, or one of the two infinities."""
        in_dtype = self._ranged(r)
        agree = (e.isfinite() & in_dtype.isfinite()) | are_same(e, in_dtype)
        found = agree & ~self._is_at_edge(r) & ~(c.isfinite() & e.isfinite()) & ~are_same(c, e)
        return found if bool(found.any()) else None

    def _ranged(self, values: Any) -> Any:
        """Return values with infinities for those that the dtype cannot hold."""
        import torch

        return torch.where(values.abs() > float(self.about.max), values.sign() * torch.inf, values)

    def _is_at_edge(self, values: Any) -> Any:
        """Return where values are so near to the range of the dtype that they may be finite or not."""
        most = float(self.about.max)
        return (values.abs() > most) & (values.abs() <= 2 * most)

    def _still_strange(self, moved: Sequence[Any]) -> Any:
        """Return where compiled code is strange, and moved inputs do not change what float64 says."""
        if self.strange is None:
            return None
        found, r = self.strange, self._ranged(self.values[2].double())
        for one in moved:
            p = self._ranged(one.double())
            found = found & ~self._is_at_edge(one) & ((p.isfinite() & r.isfinite()) | are_same(p, r))
        return found if bool(found.any()) else None


def are_same(one: Any, other: Any) -> Any:
    return (one == other) | (one.isnan() & other.isnan())


def row_maximum(values: Any) -> Any:
    if values.ndim and values.shape[-1] > 1:
        return values.amax(-1, keepdim=True)
    return values.amax()


def position(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    position: list[int] = []
    for size in reversed(shape):
        position.append(flat % size)
        flat //= size
    return tuple(reversed(position))
