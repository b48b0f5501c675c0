"""Digests of the bits of tensors: 64 bits that do not depend on the order in which threads visit the elements.

The elements, in the order of the walk over the tensor, are a stream of bytes in units of 8 KiB, and each unit is one of
2,048 little-endian words of 32 bits, the last padded with zeros. The sum of each word times the key of its unit times
the key of its place in the unit, modulo 2**64, is a multilinear hash (Carter and Wegman 1979) whose keys are mixed from
the numbers of units and places as in the finaliser of MurmurHash3. Keys are odd, so that a change of one word always
changes the sum; two tensors that differ in several words have the same sum with a probability between 2**-64 and, if
only the highest bits of words differ, 2**-33. To the sum are added the number of bytes and a number for the order.

The walk is in row-major order if that is also the order in memory, and else in the order in memory. Equal digests of
tensors of one dtype and size mean equal bits; a tensor and its copy in another order of dimensions have two digests.
`cpu_kernel.cpp`, `torch_ops.py` and `cuda_kernel.py` compute the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

UNIT_BYTES = 8192
PLACES = UNIT_BYTES // 4
UNKNOWN = 0
"""The digest of what was not read, and of a tensor in which an expanded dimension repeats elements."""
PLACE_FACTORS = 0x9E3779B1, 15, 0x85EBCA77, 13
UNIT_FACTORS = 0xC2B2AE3D, 16, 0x27D4EB2F, 15
"""Factor, shift, factor and shift that mix a number plus 1 to a key of 32 bits."""
BYTES_FACTOR = 0x9E3779B97F4A7C15
_TOP = 1 << 64

Words = npt.NDArray[np.uint64]


def mixed(numbers: npt.ArrayLike, factors: tuple[int, int, int, int]) -> Words:
    """Return the odd keys of 32 bits of some numbers."""
    factor, shift, factor2, shift2 = factors
    x = (np.asarray(numbers, np.uint64) + np.uint64(1)) * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(shift)
    x = x * np.uint64(factor2) & np.uint64(0xFFFFFFFF)
    found: Words = (x ^ (x >> np.uint64(shift2))) | np.uint64(1)
    return found


@cache
def place_keys() -> Words:
    return mixed(np.arange(PLACES), PLACE_FACTORS)


def sum_of(data: bytes | npt.NDArray[np.uint8], first_unit: int) -> int:
    """Return the sum of bytes that begin with unit number `first_unit`."""
    raw = np.frombuffer(data, np.uint8)
    units = -(-len(raw) // UNIT_BYTES)
    padded = np.zeros(units * UNIT_BYTES, np.uint8)
    padded[: len(raw)] = raw
    words = padded.view("<u4").astype(np.uint64).reshape(units, PLACES)
    of_units = (words * place_keys()).sum(1, dtype=np.uint64)
    keys = mixed(np.arange(first_unit, first_unit + units), UNIT_FACTORS)
    return int((of_units * keys).sum(dtype=np.uint64))


def finished(total: int, nbytes: int, order: int) -> int:
    """Return the digest for the sum of all words; never `UNKNOWN`."""
    return (total + (nbytes + 1) * BYTES_FACTOR + order) % _TOP or 1


def order_of(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return a number of 64 bits for the order of the dimensions in memory; 0 if it is the row-major order."""
    dims, weight = [], 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step:
            dims.append((step, weight, size))
        weight *= size
    in_memory = sorted(dims, reverse=True)
    if in_memory == dims[::-1] or weight == 0:
        return 0
    text = ",".join(f"{size}x{weight}" for _, weight, size in in_memory)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def signed(number: int) -> int:
    """Return the int64 that has the bits of a uint64."""
    return number - _TOP if number >= _TOP // 2 else number
