"""Data formats shared by the CUDA kernels and the host: kinds of elements, plans, views, rows of partial results.

A row is 19 words of 64 bits. All words are defined so that 0 is their initial value:

====  ======================================================================================================
word  contents
====  ======================================================================================================
0, 1  float64: sums of d and of d * d, where d is a finite element minus the zero point
2, 3  float64: the same sums of d * 2**-600, for d too large for words 0 and 1 (float64 only)
4     float64: sum of (d * 2**600)**2, for d too small for word 1 (float64 only)
5     float64: the zero point, the first element of the tensor in memory, or 0 if that is not finite
6-11  counts in the order of `COUNTS`: NaN, +infinity, -infinity, zero, near overflow, subnormal
12    maximum as an unsigned rank; 13: the complement of the rank of the minimum
14    2**63 - 1 minus the flat index of the first NaN or infinity
15    number of elements read, times 256, plus the kind, plus 32 if there is no digest (`NO_DIGEST`)
16    2**63 - 1 minus the time (ns) at which the first program began; 17: the time at which the last one ended
18    the sum of the digest (`digest`), with the number for the order
====  ======================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.tracer.runtime.stats import ROW
from stepscope.tracer.runtime.stats.digest import BYTES_FACTOR, UNKNOWN, order_of, signed
from stepscope.tracer.schema.statistics import COUNTS

F32, BF16, F16, F64, E4M3, E5M2, E4M3Z, E5M2Z, E8M0 = range(9)
FIRST_INTEGER, FIRST_UNSIGNED, U64, BOOL = 16, 20, 23, 24
KINDS = {
    "float32": (F32, 4), "bfloat16": (BF16, 2), "float16": (F16, 2), "float64": (F64, 8),
    "float8_e4m3fn": (E4M3, 1), "float8_e5m2": (E5M2, 1), "float8_e4m3fnuz": (E4M3Z, 1),
    "float8_e5m2fnuz": (E5M2Z, 1), "float8_e8m0fnu": (E8M0, 1),
    "int8": (16, 1), "int16": (17, 2), "int32": (18, 4), "int64": (19, 8),
    "uint8": (20, 1), "uint16": (21, 2), "uint32": (22, 4), "uint64": (U64, 8), "bool": (BOOL, 1),
}  # fmt: skip
"""Kind and size in bytes of each dtype that can be read."""

ROW_WORDS = 19
NO_DIGEST = 32
COUNT_WORDS = (6, 7, 8, 9, 10, 11)
UNIT_LOG = 13
UNIT = 1 << UNIT_LOG
"""Size of a unit in bytes."""
COUNT_BITS = 21
"""Bits of each of three counts in one word; a program counts fewer than 2 ** 21 elements."""
MOST_UNITS = 62
"""Maximum units of a program, so that a lane's counts do not overflow: `_fast` counts 2 elements of a unit in bfloat16,
which is exact up to 256, and `_exact` counts up to 16 in 10 bits."""
MOST_PROGRAMS = 1 << 22
DIMENSIONS = 5
LINEAR, PERMUTED, STRIDED, PITCHED = range(4)
"""Forms of tensors: contiguous, dense in another order, any other view, and a view of contiguous pieces of memory at
equal distances (`pieces`), such as q, k and v of one matrix product."""
VECTOR = 16
"""Size in bytes of what a thread loads at once."""
PIECE_WORDS = 4
TABLE_WORDS = 3 * DIMENSIONS + PIECE_WORDS + 1
"""Words of a tensor in the table of views: dimensions, `pieces`, and `digest.order_of` or `EXPANDED`."""
EXPANDED = -1
WARPS = 8
FLAG_WORDS = 64
COPY_WORDS = 1024
SHRINK = np.longdouble(2) ** 600
_TOP = 2**63 - 1
_SIZES = np.zeros(32, np.int64)
for _kind, _size in KINDS.values():
    _SIZES[_kind] = _size


def plan(kind: int, size: int, form: int, first: int, per: int, step: int) -> int:
    """Pack what the kernel must know of a tensor besides address and numel into 63 bits.

    `first` is the first program that reads it, `per` the units of a program, `step` the stride between units.
    """
    return kind | (size.bit_length() - 1) << 5 | form << 7 | first << 9 | per << 32 | step << 48


def units_to_read(numel: int, size: int, step: int) -> int:
    """Return the number of units of a tensor that are read."""
    return sampled_units(numel, size, step) if step > 1 else numel * size // UNIT


def units_per_program(units: Sequence[int], at_once: int) -> int:
    """Return how many units of tensors with `units` a program reads, if the device runs `at_once` programs at a time.

    Programs fill whole rounds, since a round of few programs takes as long as a full one.
    """
    at_once = max(1, at_once - len(units))  # for each tensor, one more reads the elements before and after the units
    rounds = math.ceil(sum(units) / (at_once * MOST_UNITS))
    return math.ceil(sum(units) / (at_once * rounds)) if rounds else 1


def programs(numel: int, units: int, per: int) -> int:
    """Return the number of programs for a tensor of which each program reads `per` units."""
    return math.ceil(units / per) + 1 if numel else 0


def sampled_units(numel: int, size: int, step: int) -> int:
    """Return the number of units in a sample; the last unit, which alignment may cut off, is never in it."""
    return (numel * size // UNIT - 1) // step


def sample_step(numel: int, size: int, most_bytes: int | None) -> int:
    """Return the stride between units; 1 if all are read, as of tensors with fewer than 3 units."""
    units = numel * size // UNIT
    most = MOST_PROGRAMS * MOST_UNITS if not most_bytes else max(1, most_bytes // UNIT)
    if units <= most or units < 3:
        return 1
    return min(math.ceil((units - 1) / most), units - 1, 0x7FFF)


def view_table(shape: Sequence[int], stride: Sequence[int], size: int) -> tuple[int, list[int]] | None:
    """Return the form of a view whose elements have `size` bytes, and the `TABLE_WORDS` of one that is not contiguous.

    They are (size, stride, row-major stride) of each dimension, `pieces`, and the number for the order. Dimensions are
    in the order of `_dimensions` and merged if possible; the table is padded in front with dimensions of size 1.
    Returns None if more dimensions are left than the kernel takes.
    """
    dims = _dimensions(shape, stride)
    joined: list[tuple[int, int, int]] = []
    for count, step, weight in dims:
        if joined and joined[-1][1] == count * step and joined[-1][2] == count * weight:
            count *= joined.pop()[0]
        joined.append((count, step, weight))
    expected, form = 1, LINEAR
    for count, step, weight in reversed(joined):
        if step != expected:
            form = STRIDED
        elif weight != expected and form == LINEAR:
            form = PERMUTED
        expected *= count
    if form == LINEAR:
        return form, []
    if len(joined) > DIMENSIONS:
        return None
    found = pieces(dims, size) if form == STRIDED else None
    padded = [(1, 0, 0)] * (DIMENSIONS - len(joined)) + joined
    table = [number for dim in padded for number in dim]
    order = EXPANDED if any(step == 0 for _, step, _ in dims) else signed(order_of(shape, stride))
    return (form if found is None else PITCHED), [*table, *(found or [0] * PIECE_WORDS), order]


def _dimensions(shape: Sequence[int], stride: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (size, stride, row-major stride) of each dimension by decreasing stride, but those of stride 0 first."""
    logical, weight = [], 1
    for size in reversed(shape):
        logical.append(weight)
        weight *= size
    dims = [(s, m, w) for s, m, w in zip(shape, stride, reversed(logical), strict=True) if s != 1]
    return sorted(dims, key=lambda dim: (dim[1] == 0, dim[1], dim[2]), reverse=True)


def pieces(dims: Sequence[tuple[int, int, int]], size: int) -> list[int] | None:
    """Return how to read a view in contiguous pieces of whole vectors, or None if it has other pieces.

    The numbers are the vectors of a piece, the pieces of a group, and the distances in vectors between pieces and
    between groups.
    """
    joined: list[tuple[int, int]] = []
    for count, step, _ in dims:
        if joined and joined[-1][1] == count * step:
            count *= joined.pop()[0]
        joined.append((count, step))
    (in_piece, unit), outer = joined[-1], [(1, 0)] * (3 - len(joined)) + joined[:-1]
    distances = [step * size for _, step in outer]
    if unit != 1 or len(outer) != 2 or any(n % VECTOR for n in (in_piece * size, *distances)):
        return None
    group, between_groups, between_pieces = outer[1][0], distances[0] // VECTOR, distances[1] // VECTOR
    return [in_piece * size // VECTOR, group, between_pieces, between_groups]


def finish(words: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Compute `ROW`s from partial results (int64, shape (n, ROW_WORDS)); rows that no kernel wrote get NaN."""
    rows = np.zeros(len(words), ROW)
    for name, word in zip(COUNTS, COUNT_WORDS, strict=True):
        rows[name] = words[:, word]
    kind, n = words[:, 15] & 31, words[:, 15] >> 8
    rows["digest"] = _digests(words, kind, n)
    rows["first_bad"] = -1
    if (words[:, 6] | words[:, 7] | words[:, 8]).any():  # rare, and the program waits for this code
        bad = rows["nan"] + rows["positive_infinity"] + rows["negative_infinity"]
        rows["first_bad"] = np.where(bad > 0, _TOP - words[:, 14], -1)
        n -= bad
    _range(rows, words, kind, n)
    _moments(rows, words.view(np.float64), kind, n)
    return rows


def _digests(
    words: npt.NDArray[np.int64], kind: npt.NDArray[np.int64], n: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    sums = words[:, 18].astype(np.uint64) + (n * _SIZES[kind] + 1).astype(np.uint64) * np.uint64(BYTES_FACTOR)
    unknown = (words[:, 17] == 0) | (words[:, 15] & NO_DIGEST != 0)
    return np.where(unknown, np.uint64(UNKNOWN), np.maximum(sums, np.uint64(1)))


def _range(
    rows: npt.NDArray[Any], words: npt.NDArray[np.int64], kind: npt.NDArray[np.int64], n: npt.NDArray[np.int64]
) -> None:
    most, least = words[:, 12] ^ -(2**63), words[:, 13] ^ _TOP
    empty, integers = np.flatnonzero(n <= 0), np.flatnonzero((kind >= FIRST_INTEGER) & (n > 0))
    large = np.flatnonzero((kind == U64) & (n > 0)) if len(integers) else integers
    for name, exact, order in ("min", "exact_min", least), ("max", "exact_max", most):
        rows[name] = (order ^ ((order >> 63) & _TOP)).view(np.float64)
        rows[name][empty] = np.nan
        if len(integers):
            rows[name][integers] = order[integers].astype(np.float64)
            rows[exact][integers] = order[integers]
        if len(large):
            bits = order[large] ^ -(2**63)
            rows[exact][large] = bits
            rows[name][large] = bits.view(np.uint64).astype(np.float64)


def _moments(
    rows: npt.NDArray[Any], sums: npt.NDArray[np.float64], kind: npt.NDArray[np.int64], n: npt.NDArray[np.int64]
) -> None:
    wide = np.flatnonzero(kind == F64)
    few = np.flatnonzero(n < 2)
    with np.errstate(all="ignore"):
        away = sums[:, 0] / n
        mean = sums[:, 5] + away
        std = np.sqrt(np.maximum(sums[:, 1] - sums[:, 0] * away, 0) / (n - 1))
        if len(wide):
            part, count = sums[wide].astype(np.longdouble), n[wide]
            total = part[:, 0] + part[:, 2] * SHRINK
            squares = part[:, 1] + part[:, 3] * SHRINK * SHRINK + part[:, 4] / SHRINK / SHRINK
            variance = np.maximum(squares - total * (total / count), 0) / (count - 1)
            mean[wide] = part[:, 5] + total / count
            std[wide] = np.sqrt(variance)
    # Rounding must not give a constant tensor a deviation, or move the mean out of the range.
    low, high = rows["min"], rows["max"]  # NaN if there are no elements, and then the mean is NaN too
    std[low == high] = 0
    std[few] = np.nan
    rows["mean"], rows["std"] = np.clip(mean, low, high), std


def times(words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return begin and end (ns of the device's clock) of each row, shape (n, 2); 0, 0 if no program ran."""
    ran = words[:, 17] != 0
    return np.stack([np.where(ran, _TOP - words[:, 16], 0), words[:, 17]], axis=1)
