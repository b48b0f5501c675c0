"""Triton functions that decode the bits of elements, for `cuda_kernel`."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
from triton import language as tl

from stepscope.tracer.runtime.stats import cuda_rows as layout

F32, BF16, F16 = tl.constexpr(layout.F32), tl.constexpr(layout.BF16), tl.constexpr(layout.F16)
F64, E4M3, E5M2 = tl.constexpr(layout.F64), tl.constexpr(layout.E4M3), tl.constexpr(layout.E5M2)
E4M3Z, E5M2Z, E8M0 = tl.constexpr(layout.E4M3Z), tl.constexpr(layout.E5M2Z), tl.constexpr(layout.E8M0)
FIRST_INTEGER, FIRST_UNSIGNED = tl.constexpr(layout.FIRST_INTEGER), tl.constexpr(layout.FIRST_UNSIGNED)
U64 = tl.constexpr(layout.U64)
INFINITY = tl.constexpr(float("inf"))
MOST, LEAST = tl.constexpr(2**63 - 1), tl.constexpr(-(2**63))


@triton.jit
def raw(address, size_log, offset, mask):
    """Return the bits of elements as int64, padded with zeros."""
    if size_log == 0:
        bits = tl.load(address.to(tl.pointer_type(tl.uint8)) + offset, mask=mask, other=0).to(tl.int64)
    elif size_log == 1:
        bits = tl.load(address.to(tl.pointer_type(tl.uint16)) + offset, mask=mask, other=0).to(tl.int64)
    elif size_log == 2:
        bits = tl.load(address.to(tl.pointer_type(tl.uint32)) + offset, mask=mask, other=0).to(tl.int64)
    else:
        bits = tl.load(address.to(tl.pointer_type(tl.int64)) + offset, mask=mask, other=0)
    return bits


@triton.jit
def _float8(raw, kind):
    bits = raw.to(tl.int32)
    has_three = (kind == E4M3) | (kind == E4M3Z)
    exponent = tl.where(kind == E4M3, 120, tl.where(kind == E5M2, 112, tl.where(kind == E4M3Z, 119, 111)))
    magnitude = ((bits & 127) << tl.where(has_three, 20, 21)).to(tl.float32, bitcast=True).to(tl.float64)
    scale = ((exponent.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    x = magnitude * scale
    special = tl.where(kind == E4M3, 127, tl.where(kind == E5M2, 124, 128))
    x = tl.where((kind == E5M2) & ((bits & 127) == 124), INFINITY, x)
    is_nan = ((kind == E5M2) & ((bits & 127) > special)) | ((kind == E4M3) & ((bits & 127) == special))
    is_nan |= ((kind == E4M3Z) | (kind == E5M2Z)) & (bits == special)
    power = ((raw + 896) << 52).to(tl.float64, bitcast=True)
    x = tl.where(kind == E8M0, power, tl.where(bits > 127, -x, x))
    is_nan |= (kind == E8M0) & (bits == 255)
    return tl.where(is_nan, float("nan"), x)


@triton.jit
def value(bits, kind, size_log):
    """Return the elements as float64, and int64 numbers that sort like them."""
    if kind >= FIRST_INTEGER:
        unused = (64 - (8 << size_log)).to(tl.int64)
        rank = tl.where(kind < FIRST_UNSIGNED, (bits << unused) >> unused, bits)
        x = tl.where(kind == U64, bits.to(tl.uint64).to(tl.float64), rank.to(tl.float64))
        rank = tl.where(kind == U64, bits ^ LEAST, rank)
    else:
        if kind == F64:
            x = bits.to(tl.float64, bitcast=True)
        elif kind == F32:
            x = bits.to(tl.int32).to(tl.float32, bitcast=True).to(tl.float64)
        elif kind == BF16:
            x = (bits << 16).to(tl.int32).to(tl.float32, bitcast=True).to(tl.float64)
        elif kind == F16:
            x = bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float64)
        else:
            x = _float8(bits, kind)
        rank = order(x)
    return x, rank


@triton.jit
def order(x):
    bits = x.to(tl.int64, bitcast=True)
    return bits ^ ((bits >> 63) & MOST)


@triton.jit
def limits(kind):
    """Return the magnitude from which a value is near overflow, and the smallest normal value, as float64."""
    near = tl.where(kind == BF16, 126, tl.where(kind == E4M3, 7, tl.where(kind == E4M3Z, 6, 14)))
    near = tl.where(kind == E8M0, 126, near)
    near = tl.where((kind == F32) | (kind >= F64) & (kind < E4M3) | (kind >= FIRST_INTEGER), 1024, near)
    normal = tl.where((kind == F16) | (kind == E5M2), -14, tl.where(kind == E4M3, -6, -126))
    normal = tl.where(kind == E4M3Z, -7, tl.where(kind == E5M2Z, -15, normal))
    normal = tl.where(kind == F64, -1022, tl.where((kind == E8M0) | (kind >= FIRST_INTEGER), -1023, normal))
    near_bits = (near + 1023).to(tl.int64) << 52
    normal_bits = (normal + 1023).to(tl.int64) << 52
    return near_bits.to(tl.float64, bitcast=True), normal_bits.to(tl.float64, bitcast=True)
