"""Triton functions that read runs of float32, bfloat16 and float16 at the bandwidth of the device, for `cuda_kernel`.

They count no NaN and no infinity, and sum in float32; `read_fast` tells whether that was enough.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
from triton import language as tl

from stepscope.tracer.runtime.stats import cuda_rows as layout
from stepscope.tracer.runtime.stats.cuda_digest import place_key, unit_key

F32, BF16, F16 = tl.constexpr(layout.F32), tl.constexpr(layout.BF16), tl.constexpr(layout.F16)
VECTORS = tl.constexpr(layout.UNIT // layout.VECTOR // 2)  # of half a unit
WIDTH = tl.constexpr(layout.VECTOR // 4)  # words of a vector
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
def _values(words, KIND: tl.constexpr):
    """Return the values of words of two elements as float32."""
    if KIND == BF16:
        first = (words << 16).to(tl.float32, bitcast=True)
        second = (words & 0xFFFF0000).to(tl.float32, bitcast=True)
    else:
        first = (words & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        second = (words >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    return first, second


@triton.jit
def _count(words, low, high, zeros, smalls, KIND: tl.constexpr, PACKED: tl.constexpr):
    """Update, per lane, the minimum, maximum, and numbers of zeros and of values (zeros too) below the smallest normal.

    Packed counts are floating-point numbers of the elements' type, two in a word, which are exact up to 256 (bfloat16).
    """
    if PACKED and KIND == BF16:
        low, high, zeros, smalls = tl.inline_asm_elementwise(
            """{ .reg .b32 t, z, n; mov.b32 z, 0; mov.b32 n, 0x00800080;
            min.bf16x2 $0, $4, $5; max.bf16x2 $1, $4, $6;
            set.eq.bf16x2.bf16x2 t, $4, z; add.rn.bf16x2 $2, t, $7;
            abs.bf16x2 t, $4; set.lt.bf16x2.bf16x2 t, t, n; add.rn.bf16x2 $3, t, $8; }""",
            "=&r,=&r,=&r,=&r,r,r,r,r,r",
            [words, low, high, zeros, smalls],
            dtype=(tl.uint32, tl.uint32, tl.uint32, tl.uint32),
            is_pure=True,
            pack=1,
        )
    elif PACKED and KIND == F16:
        low, high, zeros, smalls = tl.inline_asm_elementwise(
            """{ .reg .b32 t, z, n; mov.b32 z, 0; mov.b32 n, 0x04000400;
            min.f16x2 $0, $4, $5; max.f16x2 $1, $4, $6;
            set.eq.f16x2.f16x2 t, $4, z; add.rn.f16x2 $2, t, $7;
            abs.f16x2 t, $4; set.lt.f16x2.f16x2 t, t, n; add.rn.f16x2 $3, t, $8; }""",
            "=&r,=&r,=&r,=&r,r,r,r,r,r",
            [words, low, high, zeros, smalls],
            dtype=(tl.uint32, tl.uint32, tl.uint32, tl.uint32),
            is_pure=True,
            pack=1,
        )
    else:
        normal: tl.constexpr = 2.0**-14 if KIND == F16 else 2.0**-126
        if KIND == F32:
            value = words.to(tl.float32, bitcast=True)
            low = tl.minimum(low, value)
            high = tl.maximum(high, value)
            zeros += (value == 0).to(tl.float32)
            smalls += (tl.abs(value) < normal).to(tl.float32)
        else:
            first, second = _values(words, KIND)
            low = tl.minimum(low, tl.minimum(first, second))
            high = tl.maximum(high, tl.maximum(first, second))
            zeros += (first == 0).to(tl.float32) + (second == 0).to(tl.float32)
            smalls += (tl.abs(first) < normal).to(tl.float32) + (tl.abs(second) < normal).to(tl.float32)
    return low, high, zeros, smalls


@triton.jit
def _add(words, s, q, middle, KIND: tl.constexpr):
    """Add differences from `middle`, and their squares, of the elements of words."""
    if KIND == F32:
        d = words.to(tl.float32, bitcast=True) - middle
        s += d
        q += d * d
    else:
        first, second = _values(words, KIND)
        first -= middle
        second -= middle
        s += first + second
        q += first * first
        q += second * second
    return s, q


@triton.jit
def _half(address, vector, places, IN_PIECES: tl.constexpr):
    """Return pointers to the words of half a unit that begins with vector number `vector`."""
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
    IS_PACKED: tl.constexpr = PACKED and KIND != F32
    IN_WORD: tl.constexpr = 1 if KIND == F32 else 2
    counter: tl.constexpr = tl.uint32 if IS_PACKED else tl.float32
    top: tl.constexpr = (0x7F807F80 if KIND == BF16 else 0x7C007C00) if IS_PACKED else INFINITY
    bottom: tl.constexpr = (0xFF80FF80 if KIND == BF16 else 0xFC00FC00) if IS_PACKED else -INFINITY
    start = tl.multiple_of(address.to(tl.pointer_type(tl.uint32)), 16)
    if IN_PIECES:
        in_piece = tl.load(table + PIECES).to(tl.uint32)
        group = tl.load(table + PIECES + 1).to(tl.uint32)
        places = in_piece, group, tl.load(table + PIECES + 2), tl.load(table + PIECES + 3)
    else:
        places = 0, 0, 0, 0
    vector = (first * (2 * VECTORS)).to(tl.uint32)
    jump = (step * (2 * VECTORS)).to(tl.uint32)
    a = tl.load(_half(start, vector, places, IN_PIECES))
    b = tl.load(_half(start, vector + VECTORS, places, IN_PIECES))
    zero = tl.full(a.shape, 0.0, tl.float32)
    together, _unused = _add(a, zero, zero, 0.0, KIND)
    together, _unused = _add(b, together, zero, 0.0, KIND)
    middle = tl.sum(together) * (0.5 / (VECTORS * WIDTH * IN_WORD))
    # The keys of a lane's words are the same in each unit.
    if IN_PIECES:
        place = (tl.arange(0, VECTORS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]).to(tl.uint32)
    else:
        place = tl.arange(0, VECTORS * WIDTH).to(tl.uint32)
    keys_a = place_key(place)
    keys_b = place_key(place + VECTORS * WIDTH)
    digest = tl.zeros((VECTORS,), tl.uint64)
    s = _summed(zero, IN_PIECES)
    q = s
    low = tl.full(a.shape, top, counter)
    high = tl.full(a.shape, bottom, counter)
    zeros = tl.full(a.shape, 0, counter)
    smalls = tl.full(a.shape, 0, counter)
    for unit in range(units):
        vector += tl.where(unit + 1 < units, jump, 0).to(tl.uint32)
        next_a = tl.load(_half(start, vector, places, IN_PIECES))
        next_b = tl.load(_half(start, vector + VECTORS, places, IN_PIECES))
        da, qa = _add(a, zero, zero, middle, KIND)
        db, qb = _add(b, da, qa, middle, KIND)
        s += _summed(db, IN_PIECES)
        q += _summed(qb, IN_PIECES)
        low, high, zeros, smalls = _count(a, low, high, zeros, smalls, KIND, PACKED)
        low, high, zeros, smalls = _count(b, low, high, zeros, smalls, KIND, PACKED)
        mixed = a.to(tl.uint64) * keys_a.to(tl.uint64) + b.to(tl.uint64) * keys_b.to(tl.uint64)
        key = unit_key((first + unit * step).to(tl.uint32))
        digest += tl.sum(tl.reshape(mixed, (VECTORS, WIDTH)), 1) * key.to(tl.uint64)
        a = next_a
        b = next_b
    if IS_PACKED:
        low0, low1 = _values(low, KIND)
        high0, high1 = _values(high, KIND)
        zeros0, zeros1 = _values(zeros, KIND)
        smalls0, smalls1 = _values(smalls, KIND)
        low4, high4 = tl.minimum(low0, low1), tl.maximum(high0, high1)
        zeros4, smalls4 = zeros0 + zeros1, smalls0 + smalls1
    else:
        low4, high4, zeros4, smalls4 = low, high, zeros, smalls
    if IN_PIECES:
        s_, q_ = tl.reduce((s, q), 0, _merge_two)
        low_, high_, zeros_, smalls_ = tl.reduce((low4, high4, zeros4, smalls4), None, _merge_counts)
    else:
        s_, q_, low_, high_, zeros_, smalls_ = tl.reduce((s, q, low4, high4, zeros4, smalls4), 0, _merge_fast)
    digest_ = tl.sum(digest, 0).to(tl.int64)
    near: tl.constexpr = INFINITY if KIND == F32 else (2.0**126 if KIND == BF16 else 2.0**14)
    # Squares of differences in a narrower range underflow in float32.
    wide_enough = (high_ == low_) | (high_ - low_ > 1e-14)
    plain = (tl.abs(s_) < INFINITY) & (q_ < INFINITY) & (high_ < near) & (-low_ < near) & wide_enough
    return plain, middle, s_, q_, low_, high_, zeros_, smalls_, digest_


@triton.jit
def read_fast(address, first, units, step, table, kind, PACKED: tl.constexpr, IN_PIECES: tl.constexpr):
    """Do what `_fast` does for a kind that is known only when the kernel runs."""
    if kind == F32:
        plain, middle, s, q, low, high, zeros, smalls, digest = _fast(
            address, first, units, step, table, F32, PACKED, IN_PIECES
        )
    elif kind == BF16:
        plain, middle, s, q, low, high, zeros, smalls, digest = _fast(
            address, first, units, step, table, BF16, PACKED, IN_PIECES
        )
    else:
        plain, middle, s, q, low, high, zeros, smalls, digest = _fast(
            address, first, units, step, table, F16, PACKED, IN_PIECES
        )
    return plain, middle, s, q, low, high, zeros, smalls, digest
