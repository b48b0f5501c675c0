"""Sums and means as a plain loop computes them: one number after another, in the precision of compiled kernels.

Eager code adds in an order, and in a precision, that compiled code has not. What such a loop loses is no error of the
compiler, and moved inputs do not show it: the sum of nearly equal numbers is rounded alike with each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.tracer.judge.targets import schema_of

LOOPS = ("sum", "mean", "var", "var_mean")
CHUNK = 4096
"""Number of steps after which Inductor's loops on the CPU begin a sum of their own."""


def is_loop(target: str) -> bool:
    """Return whether a node adds numbers up."""
    return target.startswith("op:aten.") and _kind(target) in LOOPS


def in_order(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what loops make of the operands of a node that adds numbers up, or None if it adds no real numbers.

    The variance is the mean of the squares of the distances from the mean.
    """
    import torch

    names = [one.name for one in schema_of(target).arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    tensor, kind = given["self"], _kind(target)
    if not tensor.is_floating_point() or not tensor.ndim or not tensor.numel():
        return None
    dims = sorted({one % tensor.ndim for one in given.get("dim") or range(tensor.ndim)})
    rows = tensor.movedim(dims, list(range(len(dims)))).flatten(0, len(dims) - 1)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    found = [_sum(rows)]
    if kind != "sum":
        found = [found[0] / len(rows)]
    if kind.startswith("var"):
        correction = given.get("correction")
        freedom = max(len(rows) - (1 if correction is None else correction), 0)
        found.insert(0, _sum((rows - found[0]).square()).div_(freedom))
    shape = [1 if n in dims else size for n, size in enumerate(tensor.shape)]
    dtype = given.get("dtype") or tensor.dtype
    shaped = [one.to(dtype).reshape(shape if given.get("keepdim") else one.shape) for one in found]
    return tuple(shaped) if kind == "var_mean" else shaped[0]


def _kind(target: str) -> str:
    return target.removeprefix("op:aten.").partition(".")[0]


def _sum(rows: Any) -> Any:
    """Return the sum over the first dimension; whole chunks are summed side by side."""
    whole = len(rows) // CHUNK
    total = rows.new_zeros(rows.shape[1:])
    for row in rows[whole * CHUNK :]:
        total += row
    if not whole:
        return total
    chunks = rows[: whole * CHUNK].unflatten(0, (whole, CHUNK))
    sums = rows.new_zeros((whole, *rows.shape[1:]))
    for number in range(CHUNK):
        sums += chunks[:, number]
    return total + sums.sum(0)
