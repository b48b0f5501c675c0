"""Sums, means and some functions as compiled kernels compute them, in their precision.

Eager code adds in an order, and in a precision, that compiled code has not. What a plain loop, which adds one number
after another, loses is no error of the compiler, and moved inputs do not show it: the sum of nearly equal numbers is
rounded alike with each of them. Kernels on the CPU compute `expm1` as exp(x) - 1 (`CppVecOverrides` in
torch/_inductor/codegen/cpp.py), and `erf` by a formula with an error of 1.5e-7 (ATen/cpu/vec/vec512/vec512_float.h),
so that small results have few right digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.tracer.judge.targets import schema_of

LOOPS = ("sum", "mean", "var", "var_mean")
FORMULAS = ("erf", "expm1")
CHUNK = 4096
"""Number of steps after which Inductor's loops on the CPU begin a sum of their own."""


def is_loop(target: str) -> bool:
    """Return whether kernels compute a node in a way of their own."""
    return target.startswith("op:aten.") and _kind(target) in (*LOOPS, *FORMULAS)


def in_order(target: str, args: Sequence[Any], kwargs: Mapping[str, Any], precision: Any) -> Any:
    """Return what kernels that compute in a precision make of the operands of such a node; None if eager code does.

    The variance is the mean of the squares of the distances from the mean.
    """
    if _kind(target) in FORMULAS:
        return _by_formula(_kind(target), args[0], precision)
    names = [one.name for one in schema_of(target).arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    tensor, kind = given["self"], _kind(target)
    if not tensor.is_floating_point() or not tensor.ndim or not tensor.numel():
        return None
    dims = sorted({one % tensor.ndim for one in given.get("dim") or range(tensor.ndim)})
    rows = tensor.movedim(dims, list(range(len(dims)))).flatten(0, len(dims) - 1)
    rows = rows.to(precision)
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


def _by_formula(kind: str, x: Any, precision: Any) -> Any:
    import torch

    if x.device.type != "cpu" or not x.is_floating_point() or precision != torch.float32:
        return None
    given = x.to(precision)
    if kind == "expm1":
        return (given.exp() - 1).to(x.dtype)
    t = 1 / (1 + 0.3275911 * given.abs())
    sum_of_powers = t * 1.061405429
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        sum_of_powers = (sum_of_powers + factor) * t
    return (given.sign() * (1 - sum_of_powers * (-given.square()).exp())).to(x.dtype)


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
