"""The ranges of integers that a log may contain. Queries calculate in 64 bits, and readers of JSON answers keep 53
bits. A larger integer damages only its own record."""

from __future__ import annotations

from typing import Any

NUMBERS = range(-(2**53), 2**53 + 1)
TIMES = range(-(2**61), 2**61)
"""Times in ns: the sum of two times and the difference of two others fits 64 bits. Unix times reach the year 2043."""


def bounds_of(name: str) -> range:
    """Return the range of integers that a field of this name may contain."""
    return TIMES if name == "ns" or name.endswith("_ns") else NUMBERS


def whole_number(value: Any) -> int | None:
    """Return `value` if it is an integer in `NUMBERS`, else None."""
    return value if type(value) is int and value in NUMBERS else None


def time_ns(value: Any) -> int | None:
    """Return `value` if it is an integer in `TIMES`, else None."""
    return value if type(value) is int and value in TIMES else None
