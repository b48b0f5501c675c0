"""Decides otherwise where numbers are compared: nearly equal ones count as equal, and another NaN is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EQUALS = ("op:aten.eq.", "op:aten.ne.")


def are_equal(target: str, args: tuple[Any, ...], distance: float) -> Any:
    """Return the result of `==` or `!=` for which real numbers within a relative distance are equal, else None."""
    if not target.startswith(EQUALS) or not all(map(_is_real, args)):
        return None
    are_near = (args[0] - args[1]).abs() <= distance * args[0].abs()
    return ~are_near if target.startswith(EQUALS[1]) else are_near


def with_other_nan(result: Any, function: Callable[..., Any], args: tuple[Any, ...], *, is_first: bool) -> Any:
    """Return the result of a function with the indices of the first or of the last NaN where it chose one.

    Eager code and kernels choose the largest number alike, and either of several NaN. Where a function looks for the
    smallest number, these indices are others as soon as there is one NaN.
    """
    if not any(_is_real(one) and bool(one.isnan().any()) for one in args):
        return result
    other = function(*(_ordered(one, is_first) if _is_real(one) else one for one in args))
    if isinstance(result, (list, tuple)):
        return tuple(map(_indices, result, other))
    return _indices(result, other)


def _is_real(operand: Any) -> bool:
    return hasattr(operand, "is_floating_point") and bool(operand.is_floating_point())


def _ordered(values: Any, is_first: bool) -> Any:
    """Return float64 numbers with large ones, of which the first or the last is the largest, in place of NaN."""
    import torch

    large = torch.linspace(2.0, 1.0, values.numel(), dtype=values.dtype, device=values.device).reshape(values.shape)
    return torch.where(values.isnan(), (large if is_first else 3.0 - large) * 1e300, values)


def _indices(result: Any, other: Any) -> Any:
    """Return the other result if it consists of indices."""
    import torch

    return result if result.dtype.is_floating_point or result.dtype == torch.bool else other
