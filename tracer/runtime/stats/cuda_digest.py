"""Triton functions that compute the sums of `digest`, for `cuda_kernel` and `cuda_fast`."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
from triton import language as tl

from stepscope.tracer.runtime.stats import digest

PLACES = tl.constexpr(digest.PLACES)
PLACE_FACTOR, PLACE_SHIFT = tl.constexpr(digest.PLACE_FACTORS[0]), tl.constexpr(digest.PLACE_FACTORS[1])
PLACE_FACTOR2, PLACE_SHIFT2 = tl.constexpr(digest.PLACE_FACTORS[2]), tl.constexpr(digest.PLACE_FACTORS[3])
UNIT_FACTOR, UNIT_SHIFT = tl.constexpr(digest.UNIT_FACTORS[0]), tl.constexpr(digest.UNIT_FACTORS[1])
UNIT_FACTOR2, UNIT_SHIFT2 = tl.constexpr(digest.UNIT_FACTORS[2]), tl.constexpr(digest.UNIT_FACTORS[3])


@triton.jit
def place_key(place):
    """Return the keys of places in a unit, uint32 as the places."""
    x = (place + 1) * PLACE_FACTOR
    x = (x ^ (x >> PLACE_SHIFT)) * PLACE_FACTOR2
    return (x ^ (x >> PLACE_SHIFT2)) | 1


@triton.jit
def unit_key(unit):
    """Return the keys of units, uint32 as the units."""
    x = (unit + 1) * UNIT_FACTOR
    x = (x ^ (x >> UNIT_SHIFT)) * UNIT_FACTOR2
    return (x ^ (x >> UNIT_SHIFT2)) | 1


@triton.jit
def element_sums(bits, index, size_log):
    """Return what the elements `index`, whose bits are int64, add to the sum."""
    byte = index << size_log
    word = byte >> 2
    unit = unit_key((word // PLACES).to(tl.uint32)).to(tl.uint64)
    place = (word % PLACES).to(tl.uint32)
    shifted = bits.to(tl.uint64) << ((byte & 3) * 8).to(tl.uint64)
    low = (shifted & 0xFFFFFFFF) * place_key(place).to(tl.uint64)
    high = (shifted >> 32) * place_key(place + 1).to(tl.uint64)  # is not 0 for elements of 8 bytes only
    return ((low + high) * unit).to(tl.int64)
