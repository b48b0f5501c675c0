"""Triton functions that add statistics of tensors to rows of an arena (`read_part`); `cuda_entries` has the kernels.

A tensor is cut into units of 8 KiB that start at a multiple of 16 bytes. Each program reads a run of units, and one
more program (part 0) reads the elements before and after them. A run of float32, bfloat16 or float16 is first read by
`cuda_fast`; a run with NaN, infinity or a value near overflow, and every other dtype, is read by `_exact`.

Sums are taken about a number near the mean, since sums of the values' own squares would cancel.

Sources: NVIDIA, "Parallel Thread Execution ISA" (set, min, max, add, fence, globaltimer); for the three accumulators of
squares of float64 J. L. Blue, "A portable Fortran program to find the Euclidean norm of a vector", ACM TOMS 4 (1978).
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
from triton import language as tl

from stepscope.tracer.runtime.stats import cuda_rows as layout
from stepscope.tracer.runtime.stats.cuda_digest import element_sums
from stepscope.tracer.runtime.stats.cuda_elements import limits, order, raw, value
from stepscope.tracer.runtime.stats.cuda_fast import read_fast

F64 = tl.constexpr(layout.F64)
ROW_WORDS, UNIT_LOG = tl.constexpr(layout.ROW_WORDS), tl.constexpr(layout.UNIT_LOG)
COUNT_BITS, DIMENSIONS = tl.constexpr(layout.COUNT_BITS), tl.constexpr(layout.DIMENSIONS)
STRIDED, PITCHED = tl.constexpr(layout.STRIDED), tl.constexpr(layout.PITCHED)
ORDER = tl.constexpr(layout.TABLE_WORDS - 1)
NO_DIGEST, EXPANDED = tl.constexpr(layout.NO_DIGEST), tl.constexpr(layout.EXPANDED)
TABLE_BYTES = tl.constexpr(8 * layout.TABLE_WORDS)
BIG, SHRINK, GROW = tl.constexpr(2.0**400), tl.constexpr(2.0**-600), tl.constexpr(2.0**600)
TILE, LANE_BITS = tl.constexpr(512), tl.constexpr(10)  # a lane sees at most MOST_UNITS * UNIT / TILE elements
INFINITY = tl.constexpr(float("inf"))
MOST, LEAST = tl.constexpr(2**63 - 1), tl.constexpr(-(2**63))


@triton.jit
def _now():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def _merge_exact(s0, q0, n0, x0, a0, b0, f0, d0, s1, q1, n1, x1, a1, b1, f1, d1):
    return s0 + s1, q0 + q1, tl.minimum(n0, n1), tl.maximum(x0, x1), a0 + a1, b0 + b1, tl.minimum(f0, f1), d0 + d1


@triton.jit
def _merge_sums(a0, b0, c0, a1, b1, c1):
    return a0 + a1, b0 + b1, c0 + c1


@triton.jit
def _places(index, table):
    """Return the offsets in memory and flat logical indices of the elements `index` of a view (`view_table`)."""
    rest = index
    offset = tl.zeros_like(index)
    logical = tl.zeros_like(index)
    for dimension in tl.static_range(DIMENSIONS):
        entry = table + 3 * (DIMENSIONS - 1 - dimension)
        size = tl.load(entry)
        coordinate = rest % size
        rest = rest // size
        offset += coordinate * tl.load(entry + 1)
        logical += coordinate * tl.load(entry + 2)
    return offset, logical


@triton.jit
def _exact(
    address, plan, table, amount, head, gap, first_unit, step, unit_log, zero_point, VIEWS: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Read `amount` elements, of part 0 if `first_unit` is negative, with float64 sums about `zero_point`."""
    kind = (plan & 31).to(tl.int32)
    size_log = ((plan >> 5) & 3).to(tl.int32)
    form = ((plan >> 7) & 3).to(tl.int32)
    near, normal = limits(kind)
    s = tl.zeros((TILE,), tl.float64)
    q = tl.zeros((TILE,), tl.float64)
    sb = tl.zeros((TILE,), tl.float64)
    qb = tl.zeros((TILE,), tl.float64)
    qs = tl.zeros((TILE,), tl.float64)
    low = tl.full((TILE,), MOST, tl.int64)
    high = tl.full((TILE,), LEAST, tl.int64)
    bad_counts = tl.zeros((TILE,), tl.int32)
    other_counts = tl.zeros((TILE,), tl.int32)
    first = tl.full((TILE,), MOST, tl.int64)
    digest = tl.zeros((TILE,), tl.int64)
    lane = tl.arange(0, TILE).to(tl.int64)
    for start in range(0, amount, TILE):
        i = start + lane
        inside = i < amount
        j = (tl.maximum(first_unit, 0) << unit_log) + i
        in_unit = head + (((j >> unit_log) * step) << unit_log) + (j & ((1 << unit_log) - 1))
        index = tl.where(first_unit < 0, i + tl.where(i >= head, gap, 0), in_unit)
        offset = index
        logical = index
        if VIEWS:  # noqa: SIM102 (the compiler knows one, the device the other)
            if form != 0:
                placed, logical = _places(tl.where(inside, index, 0), table)
                offset = tl.where(form >= STRIDED, placed, index)
        bits = raw(address, size_log, offset, inside)
        digest += tl.where(inside, element_sums(bits, index, size_log), 0)
        x, rank = value(bits, kind, size_log)
        size = tl.abs(x)
        finite = inside & (size < INFINITY)
        bad = inside & (finite == 0)
        first = tl.minimum(first, tl.where(bad, logical, MOST))
        is_minus = tl.where(bad & (x < 0), 1 << (2 * LANE_BITS), 0)
        bad_counts += tl.where(bad & (x != x), 1, tl.where(bad & (x > 0), 1 << LANE_BITS, is_minus))
        is_small = tl.where(finite & (size > 0) & (size < normal), 1 << (2 * LANE_BITS), 0)
        other_counts += tl.where(finite & (size == 0), 1, tl.where(finite & (size >= near), 1 << LANE_BITS, is_small))
        low = tl.where(finite, tl.minimum(low, rank), low)
        high = tl.where(finite, tl.maximum(high, rank), high)
        d = tl.where(finite, x - zero_point, 0.0)
        if WIDE:
            quarter = tl.where(finite, x * 0.25 - zero_point * 0.25, 0.0)
            is_big = tl.abs(quarter) > BIG
            big = tl.where(is_big, quarter * (SHRINK * 4.0), 0.0)
            d = tl.where(is_big, 0.0, d)
            is_tiny = tl.abs(quarter) < 1 / BIG
            tiny = tl.where(is_tiny, d * GROW, 0.0)
            sb += big
            qb += big * big
            qs += tiny * tiny
            q += tl.where(is_tiny, 0.0, d * d)
        else:
            q += d * d
        s += d
    s_, q_, low_, high_, bad_, other_, first_, digest_ = tl.reduce(
        (s, q, low, high, _widened(bad_counts), _widened(other_counts), first, digest), 0, _merge_exact
    )
    if WIDE:
        sb_, qb_, qs_ = tl.reduce((sb, qb, qs), 0, _merge_sums)
    else:
        sb_ = tl.full((), 0.0, tl.float64)
        qb_ = sb_
        qs_ = sb_
    return s_, q_, sb_, qb_, qs_, low_, high_, bad_, other_, first_, digest_


@triton.jit
def _widened(counts):
    """Return the three packed counts of a lane with the wider fields of a program's counts."""
    field: tl.constexpr = (1 << LANE_BITS) - 1
    wide = counts.to(tl.int64)
    middle = ((wide >> LANE_BITS) & field) << COUNT_BITS
    return (wide & field) | middle | ((wide >> (2 * LANE_BITS)) << (2 * COUNT_BITS))


@triton.jit
def _add_count(row, word, counts, FIELD: tl.constexpr):
    count = (counts >> (FIELD * COUNT_BITS)) & ((1 << COUNT_BITS) - 1)
    tl.atomic_add(row + word, count, mask=count != 0, sem="relaxed")


@triton.jit
def read_part(
    slots, table, address, numel, plan, index, program, VIEWS: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """Read one program's part of one tensor; `cuda_rows` defines rows and plans."""
    begin = _now()
    kind = (plan & 31).to(tl.int32)
    size_log = (plan >> 5) & 3
    form = (plan >> 7) & 3
    part = program - ((plan >> 9) & 0x7FFFFF)
    per = (plan >> 32) & 0xFFFF
    step = (plan >> 48) & 0x7FFF
    unit_log = UNIT_LOG - size_log
    head = tl.where(form >= STRIDED, 0, ((0 - address) & 15) >> size_log)
    head = tl.minimum(head, numel)
    units = (numel - head) >> unit_log
    units = tl.where(step > 1, ((numel >> unit_log) - 1) // step, units)
    gap = units << unit_log
    first_unit = (part - 1) * per
    mine = tl.maximum(tl.minimum(per, units - first_unit), 0)
    amount = tl.where(part > 0, mine << unit_log, tl.where(step > 1, 0, numel - gap))
    first_unit = tl.where(part > 0, first_unit, -1)
    x0, _order0 = value(raw(address, size_log.to(tl.int32), 0, True), kind, size_log.to(tl.int32))
    zero_point = tl.where(tl.abs(x0) < INFINITY, x0, 0.0)

    s = tl.full((), 0.0, tl.float64)
    q = tl.full((), 0.0, tl.float64)
    sb = tl.full((), 0.0, tl.float64)
    qb = tl.full((), 0.0, tl.float64)
    qs = tl.full((), 0.0, tl.float64)
    low = tl.full((), MOST, tl.int64)
    high = tl.full((), LEAST, tl.int64)
    bad_counts = tl.full((), 0, tl.int64)
    other_counts = tl.full((), 0, tl.int64)
    first = tl.full((), MOST, tl.int64)
    digest = tl.full((), 0, tl.int64)
    plain = False
    entries = (table + index * TABLE_BYTES).to(tl.pointer_type(tl.int64))
    start = address + (head << size_log)
    if (part > 0) & (kind < F64) & (form != STRIDED) & (mine > 0) & ((start & 15) == 0):
        count = mine.to(tl.int32)
        unit = first_unit * step
        if VIEWS:
            if form == PITCHED:
                plain, middle, s4, q4, low4, high4, zeros, smalls, digest = read_fast(
                    start, unit, count, step, entries, kind, PACKED, True
                )
            else:
                plain, middle, s4, q4, low4, high4, zeros, smalls, digest = read_fast(
                    start, unit, count, step, entries, kind, PACKED, False
                )
        else:
            plain, middle, s4, q4, low4, high4, zeros, smalls, digest = read_fast(
                start, unit, count, step, entries, kind, PACKED, False
            )
        if plain:
            away = middle.to(tl.float64) - zero_point
            s = s4.to(tl.float64) + away * amount
            q = q4.to(tl.float64) + away * (2 * s4.to(tl.float64) + away * amount)
            low = order(low4.to(tl.float64))
            high = order(high4.to(tl.float64))
            other_counts = zeros.to(tl.int64) | ((smalls - zeros).to(tl.int64) << (2 * COUNT_BITS))
    if (plain == 0) & (amount > 0):
        if kind == F64:
            s, q, sb, qb, qs, low, high, bad_counts, other_counts, first, digest = _exact(
                address, plan, entries, amount, head, gap, first_unit, step, unit_log, zero_point, VIEWS, True
            )
        else:
            s, q, sb, qb, qs, low, high, bad_counts, other_counts, first, digest = _exact(
                address, plan, entries, amount, head, gap, first_unit, step, unit_log, zero_point, VIEWS, False
            )

    # Units in memory are those of the tensor only if it begins at a multiple of 16 bytes.
    no_digest = tl.where((head > 0) & (units > 0) & (kind < F64), NO_DIGEST, 0)
    if VIEWS:  # noqa: SIM102
        if part == 0:
            order_number = tl.load(entries + ORDER)
            no_digest = tl.where(order_number == EXPANDED, NO_DIGEST, no_digest)
            digest += order_number
    _add_row(
        slots + index * (8 * ROW_WORDS), kind | no_digest, part, tl.where(step > 1, gap, numel), zero_point, amount, s,
        q, sb, qb, qs, low, high, bad_counts, other_counts, first, digest, begin,
    )  # fmt: skip


@triton.jit
def _add_row(
    base, kind, part, looked_at, zero_point, amount, s, q, sb, qb, qs, low, high, bad_counts, other_counts, first,
    digest, begin,
):  # fmt: skip
    row = base.to(tl.pointer_type(tl.int64))
    sums = base.to(tl.pointer_type(tl.float64))
    orders = base.to(tl.pointer_type(tl.uint64))
    if part == 0:
        tl.store(sums + 5, zero_point)
        tl.store(row + 15, (looked_at << 8) | kind)
    if amount > 0:
        tl.atomic_add(sums, s, sem="relaxed")
        tl.atomic_add(sums + 1, q, sem="relaxed")
        # Rows begin as zeros, so the minimum is the complement of the maximum of complements.
        tl.atomic_max(orders + 12, (high ^ LEAST).to(tl.uint64), sem="relaxed")
        tl.atomic_max(orders + 13, (low ^ MOST).to(tl.uint64), sem="relaxed")
    tl.atomic_add(row + 18, digest, sem="relaxed")
    if (kind & 31) == F64:
        tl.atomic_add(sums + 2, sb, mask=sb != 0, sem="relaxed")
        tl.atomic_add(sums + 3, qb, mask=qb != 0, sem="relaxed")
        tl.atomic_add(sums + 4, qs, mask=qs != 0, sem="relaxed")
    if bad_counts != 0:
        _add_count(row, 6, bad_counts, 0)
        _add_count(row, 7, bad_counts, 1)
        _add_count(row, 8, bad_counts, 2)
        tl.atomic_max(orders + 14, (MOST - first).to(tl.uint64), sem="relaxed")
    if other_counts != 0:
        _add_count(row, 9, other_counts, 0)
        _add_count(row, 10, other_counts, 1)
        _add_count(row, 11, other_counts, 2)
    tl.atomic_max(orders + 16, (MOST - begin).to(tl.uint64), sem="relaxed")
    tl.atomic_max(orders + 17, _now().to(tl.uint64), sem="relaxed")
