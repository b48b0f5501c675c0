"""Lists the dtypes that can be read, and the meaning of their bits.

Float8 formats: Micikevicius et al. 2022 (e4m3fn, e5m2); Noune et al. 2022 (the fnuz kinds); OCP Microscaling formats
1.0 (e8m0, e2m1). Torch: torch/headeronly/util/Float8_*.h, Float4_e2m1fn_x2.h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

Family = Literal["float", "integer", "pattern"]


@dataclass(frozen=True)
class DtypeKind:
    """Describes how elements of a dtype are read."""

    code: int
    """Number of the dtype in the kernel: `Kind` of cpu_kernel.cpp."""
    family: Family
    bits: int
    """Bits of one value."""
    values: int = 1
    """Values per element; 2 if torch packs two into a byte."""
    mantissa: int = 0
    """Stored bits of a float's mantissa."""
    table: int = -1
    """Index into `tables()`; -1 if there is none."""
    near: float = math.inf
    """Magnitude from which a finite value is in the top two binades."""


NAMES: dict[str, DtypeKind] = {
    "float32": DtypeKind(0, "float", 32, mantissa=23),
    "float64": DtypeKind(1, "float", 64, mantissa=52),
    "bfloat16": DtypeKind(2, "float", 16, mantissa=7, near=2.0**126),
    "float16": DtypeKind(3, "float", 16, mantissa=10, near=2.0**14),
    "int8": DtypeKind(4, "integer", 8),
    "int16": DtypeKind(5, "integer", 16),
    "int32": DtypeKind(6, "integer", 32),
    "int64": DtypeKind(7, "integer", 64),
    "uint8": DtypeKind(8, "integer", 8),
    "uint16": DtypeKind(9, "integer", 16),
    "uint32": DtypeKind(10, "integer", 32),
    "uint64": DtypeKind(11, "integer", 64),
    "bool": DtypeKind(12, "integer", 8),
    "float8_e4m3fn": DtypeKind(13, "pattern", 8, table=0, near=2.0**7),
    "float8_e5m2": DtypeKind(13, "pattern", 8, table=1, near=2.0**14),
    "float8_e4m3fnuz": DtypeKind(13, "pattern", 8, table=2, near=2.0**6),
    "float8_e5m2fnuz": DtypeKind(13, "pattern", 8, table=3, near=2.0**14),
    "float8_e8m0fnu": DtypeKind(13, "pattern", 8, table=4, near=2.0**126),
    "float4_e2m1fn_x2": DtypeKind(14, "pattern", 4, values=2, table=5),
}
KINDS: dict[torch.dtype, DtypeKind] = {
    getattr(torch, name): kind for name, kind in NAMES.items() if hasattr(torch, name)
}
"""Dtypes that can be read, without complex and quantised ones, which `parts` decomposes."""

TABLE = np.dtype([("value", "f8", 256), ("flags", "u1", 256)])
"""Value and flags (`SUBNORMAL`, `NEAR_OVERFLOW`) of each bit pattern."""
SUBNORMAL, NEAR_OVERFLOW = 1, 2


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype, such as ``float32``."""
    return str(dtype).removeprefix("torch.")


@cache
def tables() -> npt.NDArray[np.void]:
    """Return one `TABLE` record per dtype of the family "pattern", at the index `DtypeKind.table`."""
    formats = [(4, 3, 7), (5, 2, 15), (4, 3, 8), (5, 2, 16), (8, 0, 127), (2, 1, 1)]
    out = np.zeros(len(formats), TABLE)
    by_table = {kind.table: (name, kind) for name, kind in NAMES.items() if kind.family == "pattern"}
    for index, (exponent, mantissa, bias) in enumerate(formats):
        name, kind = by_table[index]
        for code in range(256 >> (8 - kind.bits)):
            value = math.ldexp(1.0, code - bias) if exponent == 8 else _decode(code, exponent, mantissa, bias)
            value = _special(name, code, value)
            out[index]["value"][code] = value
            is_subnormal = exponent < 8 and value != 0 and not (code >> mantissa) & ((1 << exponent) - 1)
            near = math.isfinite(value) and abs(value) >= kind.near
            out[index]["flags"][code] = SUBNORMAL * (is_subnormal and not math.isnan(value)) + NEAR_OVERFLOW * near
    return out


def _decode(code: int, exponent: int, mantissa: int, bias: int) -> float:
    """Return the value of a code of sign, exponent and mantissa, without special values."""
    power = (code >> mantissa) & ((1 << exponent) - 1)
    fraction = code & ((1 << mantissa) - 1)
    size = math.ldexp(fraction + (1 << mantissa if power else 0), max(power, 1) - bias - mantissa)
    return -size if code >> (exponent + mantissa) else size


def _special(name: str, code: int, value: float) -> float:
    if name == "float8_e5m2" and code & 0x7F >= 0x7C:
        return math.nan if code & 3 else math.copysign(math.inf, value)
    nans = {"float8_e4m3fn": (0x7F, 0xFF), "float8_e8m0fnu": (0xFF,)}
    fnuz = (0x80,) if name.endswith("fnuz") else ()
    return math.nan if code in nans.get(name, fnuz) else value
