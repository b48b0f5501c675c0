"""The numbers that a log may hold. Queries add, subtract and multiply them in 64 bits, and readers of JSON answers keep
53 bits. A larger number is damage of the record that holds it, and of nothing else."""

from __future__ import annotations

from typing import Any

NUMBERS = range(-(2**53), 2**53 + 1)
TIMES = range(-(2**61), 2**61)
"""In ns: two of them and a difference of two can be added up. Those of the unix clock reach the year 2043."""


def bounds_of(name: str) -> range:
    """What a field of this name may hold."""
    return TIMES if name == "ns" or name.endswith("_ns") else NUMBERS


def whole_number(value: Any) -> int | None:
    """`value` when it is an integer that can be, else None."""
    return value if type(value) is int and value in NUMBERS else None


def time_ns(value: Any) -> int | None:
    """`value` when it is a time in ns that can be, else None."""
    return value if type(value) is int and value in TIMES else None
