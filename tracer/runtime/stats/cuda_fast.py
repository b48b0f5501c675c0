"""Triton functions that read runs of float32, bfloat16 and float16 at the bandwidth of the device, for `cuda_kernel`.

They count no NaN and no infinity, and sum in float32; `read_fast` tells whether that was enough.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
from triton import language as tl

from stepscope.tracer.runtime.stats import cuda_rows as layout

F32, BF16, F16 = tl.constexpr(layout.F32), tl.constexpr(layout.BF16), tl.constexpr(layout.F16)
VECTORS = tl.constexpr(layout.UNIT // layout.VECTOR // 2)  # of half a unit
PIECES = tl.constexpr(3 * layout.DIMENSIONS)
INFINITY = tl.constexpr(float("inf"))


@triton.jit
def _merge_fast(s0, q0, n0, x0, z0, t0, s1, q1, n1, x1, z1, t1):
    return s0 + s1, q0 + q1, tl.minimum(n0, n1), tl.maximum(x0, x1), z0 + z1, t0 + t1


@triton.jit
def _merge_two(s0, q0, s1, q1):
    return s0 + s1, q0 + q1


@triton.jit
def _merge_counts(n0, x0, z0, t0, n1, x1, z1, t1):
    return tl.minimum(n0, n1), tl.maximum(x0, x1), z0 + z1, t0 + t1


@triton.jit
def _summed(x, IN_PIECES: tl.constexpr):
    return tl.sum(x, 1) if IN_PIECES else x


@triton.jit
def _count(x, low, high, zeros, smalls, KIND: tl.constexpr, PACKED: tl.constexpr):
    """Update, per lane, the minimum, maximum, and numbers of zeros and of values (zeros too) below the smallest normal.

    Packed counts are floating-point numbers of the elements' type, which are exact up to 256 (bfloat16).
    """
    if PACKED and KIND == BF16:
        low, high, zeros, smalls = tl.inline_asm_elementwise(
            """{ .reg .b32 t, z, n; mov.b32 z, 0; mov.b32 n, 0x00800080;
            min.bf16x2 $0, $4, $5; max.bf16x2 $1, $4, $6;
            set.eq.bf16x2.bf16x2 t, $4, z; add.rn.bf16x2 $2, t, $7;
            abs.bf16x2 t, $4; set.lt.bf16x2.bf16x2 t, t, n; add.rn.bf16x2 $3, t, $8; }""",
            "=&r,=&r,=&r,=&r,r,r,r,r,r",
            [x, low, high, zeros, smalls],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    elif PACKED and KIND == F16:
        low, high, zeros, smalls = tl.inline_asm_elementwise(
            """{ .reg .b32 t, z, n; mov.b32 z, 0; mov.b32 n, 0x04000400;
            min.f16x2 $0, $4, $5; max.f16x2 $1, $4, $6;
            set.eq.f16x2.f16x2 t, $4, z; add.rn.f16x2 $2, t, $7;
            abs.f16x2 t, $4; set.lt.f16x2.f16x2 t, t, n; add.rn.f16x2 $3, t, $8; }""",
            "=&r,=&r,=&r,=&r,r,r,r,r,r",
            [x, low, high, zeros, smalls],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    else:
        value = x.to(tl.float32)
        low = tl.minimum(low, value)
        high = tl.maximum(high, value)
        zeros += (value == 0).to(tl.float32)
        normal: tl.constexpr = 2.0**-14 if KIND == F16 else 2.0**-126
        smalls += (tl.abs(value) < normal).to(tl.float32)
    return low, high, zeros, smalls


@triton.jit
def _half(address, vector, places, WIDTH: tl.constexpr, IN_PIECES: tl.constexpr):
    """Return pointers to the elements, `WIDTH` of a vector, of half a unit that begins with vector number `vector`."""
    if IN_PIECES:
        in_piece, group, pitch, group_pitch = places
        vector += tl.arange(0, VECTORS).to(tl.uint32)
        piece = vector // in_piece
        outer = piece // group
        vector -= piece * in_piece
        piece -= outer * group
        there = vector.to(tl.int64) + piece.to(tl.int64) * pitch + outer.to(tl.int64) * group_pitch
        first = tl.multiple_of(there * WIDTH, WIDTH)
        pointers = address + (first[:, None] + tl.arange(0, WIDTH)[None, :])
    else:
        pointers = address + vector.to(tl.int64) * WIDTH + tl.arange(0, VECTORS * WIDTH)
    return pointers


@triton.jit
def _fast(address, first, units, step, table, KIND: tl.constexpr, PACKED: tl.constexpr, IN_PIECES: tl.constexpr):
    """Read `units` units, every `step`-th one from number `first` on; `address` is that of unit 0, a multiple of 16."""
    element: tl.constexpr = tl.float32 if KIND == F32 else (tl.bfloat16 if KIND == BF16 else tl.float16)
    WIDTH: tl.constexpr = 4 if KIND == F32 else 8
    counter: tl.constexpr = element if PACKED else tl.float32
    start = tl.multiple_of(address.to(tl.pointer_type(element)), 16)
    if IN_PIECES:
        in_piece = tl.load(table + PIECES).to(tl.uint32)
        group = tl.load(table + PIECES + 1).to(tl.uint32)
        places = in_piece, group, tl.load(table + PIECES + 2), tl.load(table + PIECES + 3)
    else:
        places = 0, 0, 0, 0
    vector = (first * (2 * VECTORS)).to(tl.uint32)
    jump = (step * (2 * VECTORS)).to(tl.uint32)
    a = tl.load(_half(start, vector, places, WIDTH, IN_PIECES))
    b = tl.load(_half(start, vector + VECTORS, places, WIDTH, IN_PIECES))
    together = a.to(tl.float32) + b.to(tl.float32)
    middle = tl.sum(together) * (0.5 / (VECTORS * WIDTH))
    s = _summed(tl.full(a.shape, 0.0, tl.float32), IN_PIECES)
    q = s
    low = tl.full(a.shape, INFINITY, counter)
    high = tl.full(a.shape, -INFINITY, counter)
    zeros = tl.full(a.shape, 0.0, counter)
    smalls = tl.full(a.shape, 0.0, counter)
    for unit in range(units):
        vector += tl.where(unit + 1 < units, jump, 0).to(tl.uint32)
        next_a = tl.load(_half(start, vector, places, WIDTH, IN_PIECES))
        next_b = tl.load(_half(start, vector + VECTORS, places, WIDTH, IN_PIECES))
        d = a.to(tl.float32) - middle
        s += _summed(d, IN_PIECES)
        q += _summed(d * d, IN_PIECES)
        low, high, zeros, smalls = _count(a, low, high, zeros, smalls, KIND, PACKED)
        d = b.to(tl.float32) - middle
        s += _summed(d, IN_PIECES)
        q += _summed(d * d, IN_PIECES)
        low, high, zeros, smalls = _count(b, low, high, zeros, smalls, KIND, PACKED)
        a = next_a
        b = next_b
    if IN_PIECES:
        s_, q_ = tl.reduce((s, q), 0, _merge_two)
        low_, high_, zeros_, smalls_ = tl.reduce(
            (low.to(tl.float32), high.to(tl.float32), zeros.to(tl.float32), smalls.to(tl.float32)), None, _merge_counts
        )
    else:
        s_, q_, low_, high_, zeros_, smalls_ = tl.reduce(
            (s, q, low.to(tl.float32), high.to(tl.float32), zeros.to(tl.float32), smalls.to(tl.float32)), 0, _merge_fast
        )
    near: tl.constexpr = INFINITY if KIND == F32 else (2.0**126 if KIND == BF16 else 2.0**14)
    # Squares of differences in a narrower range underflow in float32.
    wide_enough = (high_ == low_) | (high_ - low_ > 1e-14)
    plain = (tl.abs(s_) < INFINITY) & (q_ < INFINITY) & (high_ < near) & (-low_ < near) & wide_enough
    return plain, middle, s_, q_, low_, high_, zeros_, smalls_


@triton.jit
def read_fast(address, first, units, step, table, kind, PACKED: tl.constexpr, IN_PIECES: tl.constexpr):
    """Do what `_fast` does for a kind that is known only when the kernel runs."""
    if kind == F32:
        plain, middle, s, q, low, high, zeros, smalls = _fast(
            address, first, units, step, table, F32, PACKED, IN_PIECES
        )
    elif kind == BF16:
        plain, middle, s, q, low, high, zeros, smalls = _fast(
            address, first, units, step, table, BF16, PACKED, IN_PIECES
        )
    else:
        plain, middle, s, q, low, high, zeros, smalls = _fast(
            address, first, units, step, table, F16, PACKED, IN_PIECES
        )
    return plain, middle, s, q, low, high, zeros, smalls
