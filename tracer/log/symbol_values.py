"""Values of the numbers that generated code computes in each call, and their record in the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import NamedTuple, Protocol

from stepscope.tracer.schema.scalars import Assignment, CallSymbols

_INT64 = range(-(2**63), 2**63)
Plain = int | float | str | None
"""A value as in `Assignment.value`; a boolean is an integer here."""


class SymbolValues(NamedTuple):
    symbols: tuple[int, ...]
    """Indices into `Graph.symbols`."""
    launches: int
    """Number of launches of the call that had begun."""
    values: tuple[Plain, ...]


class CallWithSymbols(Protocol):
    """The part of `stepscope.tracer.runtime.calls.GraphCall` that is used here."""

    number: int
    symbols: list[SymbolValues]


def plain_values(values: Iterable[object]) -> tuple[Plain, ...]:
    """Return `values` in JSON's types, with None for those that are not numbers; keeps none of them alive."""
    return tuple(map(_plain, values))


def _plain(value: object) -> Plain:
    if isinstance(value, bool) or (type(value) is int and value in _INT64):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(float(value))
    return None


def symbols_of(calls: Sequence[CallWithSymbols]) -> Iterator[CallSymbols]:
    """Yield one record of all calls that have symbols, or nothing if none has."""
    numbers: dict[tuple[object, ...], int] = {}
    assignments: list[Assignment] = []
    assigned: list[int] = []
    known = [call for call in calls if call.symbols]
    for call in known:
        key = (*call.symbols, *(type(value) for one in call.symbols for value in one.values))  # True is equal to 1
        if key not in numbers:
            numbers[key] = len(assignments)
            assignments.append(_assignment(call.symbols))
        assigned.append(numbers[key])
    if known:
        yield CallSymbols([call.number for call in known], assigned, assignments)


def _assignment(found: Sequence[SymbolValues]) -> Assignment:
    return Assignment(
        symbol=[symbol for one in found for symbol in one.symbols],
        launches=[one.launches for one in found for _ in one.symbols],
        value=[value for one in found for value in one.values],
    )
