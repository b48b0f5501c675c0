"""Statistics the slow way: one Python number after another, exact where floating point allows."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Largest exponent of a finite value, exponent of the least normal one: sign, exponent and mantissa of each format.
FLOATS = {
    "float16": (15, -14), "bfloat16": (127, -126), "float32": (127, -126), "float64": (1023, -1022),
    "float8_e4m3fn": (8, -6), "float8_e5m2": (15, -14), "float8_e4m3fnuz": (7, -7), "float8_e5m2fnuz": (15, -15),
}  # fmt: skip
HAS_NEAR = {name for name in FLOATS if name not in ("float32", "float64")}


def values(tensor: Tensor) -> list[Any]:
    """Row-major, as Python numbers; bool as 0 and 1."""
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return [int(v) for v in tensor.detach().contiguous().numpy().reshape(-1)]
    if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float64, torch.float32):
        tensor = tensor.float()
    return [int(v) if isinstance(v, bool) else v for v in tensor.detach().reshape(-1).tolist()]


def row_of(tensor: Tensor, step: int = 1) -> dict[str, Any]:
    name = str(tensor.dtype).removeprefix("torch.")
    taken = values(tensor)[::step]
    finite = [v for v in taken if isinstance(v, int) or math.isfinite(v)]
    bad = [i * step for i, v in enumerate(taken) if isinstance(v, float) and not math.isfinite(v)]
    top, bottom = FLOATS.get(name, (0, None))
    out: dict[str, Any] = {
        "nan": sum(v != v for v in taken),
        "positive_infinity": sum(v == math.inf for v in taken),
        "negative_infinity": sum(v == -math.inf for v in taken),
        "zero": sum(v == 0 for v in taken),
        "near_overflow": sum(abs(v) >= 2.0 ** (top - 1) for v in finite) if name in HAS_NEAR else 0,
        "subnormal": sum(0 < abs(v) < math.ldexp(1, bottom) for v in finite) if bottom is not None else 0,
        "first_bad": bad[0] if bad else -1,
        "exact_min": 0,
        "exact_max": 0,
        **dict.fromkeys(("min", "max", "mean", "std"), math.nan),
    }
    if finite:
        mean, std = moments(finite)
        out |= {"min": float(min(finite)), "max": float(max(finite)), "mean": mean, "std": std}
        if isinstance(finite[0], int):
            out |= {"exact_min": signed(min(finite)), "exact_max": signed(max(finite))}
    return out


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def moments(numbers: list[Any]) -> tuple[float, float]:
    """Mean and standard deviation: by exactly rounded sums, or by fractions where squares have no room."""
    n = len(numbers)
    if all(v == 0 or 1e-100 < abs(v) < (2**50 if isinstance(v, int) else 1e100) for v in numbers):
        mean = math.fsum(numbers) / n
        return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in numbers) / (n - 1)) if n > 1 else math.nan
    exact = [Fraction(v) for v in numbers]
    middle = sum(exact, Fraction(0)) / n
    return float(middle), root(
        sum(((v - middle) * (v - middle) for v in exact), Fraction(0)) / (n - 1)
    ) if n > 1 else math.nan


def root(square: Fraction) -> float:
    """The square root of a number that need not fit a float64."""
    if square == 0:
        return 0.0
    power = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(float(square / Fraction(4) ** power)), power)


def check(got: Any, want: dict[str, Any], rel: float = 1e-5) -> None:
    """Counts and extremes exactly; mean within `rel` of the largest magnitude's scale, std within `rel`."""
    for field in want:
        mine, theirs = got[field].item(), want[field]
        if field not in ("mean", "std") or (theirs != theirs):
            assert mine == theirs or (mine != mine and theirs != theirs), (field, mine, theirs)
    if want["mean"] == want["mean"]:
        spread = want["std"] if want["std"] == want["std"] else 0.0
        assert abs(got["mean"] - want["mean"]) <= rel * spread + 1e-12 * abs(want["mean"]), (got["mean"], want["mean"])
        assert want["min"] <= got["mean"] <= want["max"]
    if want["std"] == want["std"]:
        assert np.isclose(got["std"], want["std"], rtol=rel, atol=0), (got["std"], want["std"])
