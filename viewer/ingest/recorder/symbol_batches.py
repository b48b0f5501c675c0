"""Collects the values of graph symbols in calls: from the log, or from the launch ring if the call did not end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stepscope.tracer.schema.ring_format import RingSymbols
from stepscope.tracer.schema.scalars import Assignment, CallSymbols
from stepscope.viewer.ingest.decode import BadPayload
from stepscope.viewer.ingest.rows import IndexRows

if TYPE_CHECKING:
    from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces

_NO_NUMBERS = ("inf", "-inf", "nan")


class SymbolBatches:
    def __init__(self) -> None:
        self._batches: list[CallSymbols] = []
        self._ids: dict[tuple[object, ...], int] = {}

    def take(self, batch: CallSymbols) -> None:
        """Add a record. Raises BadPayload if it is inconsistent."""
        if len(batch.call) != len(batch.assigned):
            raise BadPayload("CallSymbols has columns of unequal length")
        if any(not 0 <= number < len(batch.assignments) for number in batch.assigned):
            raise BadPayload("CallSymbols names an assignment that does not exist")
        for one in batch.assignments:
            if not len(one.symbol) == len(one.launches) == len(one.value):
                raise BadPayload("Assignment has columns of unequal length")
        self._batches.append(batch)

    def take_ring(self, found: Sequence[RingSymbols]) -> None:
        """Add values from the ring for calls without values in the log."""
        known = {call for batch in self._batches for call in batch.call}
        new = {one.call: one for one in found if one.call not in known}
        if new:
            assignments = [Assignment(list(one.symbols), list(one.launches), list(one.values)) for one in new.values()]
            self._batches.append(CallSymbols(list(new), list(range(len(new))), assignments))

    def finish(
        self, rows: IndexRows, log: int, places: LaunchPlaces | None, symbols: Mapping[int, Sequence[str]]
    ) -> int:
        """Add the rows. Returns the number of calls that are not in the log. `symbols` are the names of the symbols of
        each graph, as numbered in the log."""
        lost = 0
        for batch in self._batches:
            for call, number in zip(batch.call, batch.assigned, strict=True):
                position = places.position.get(call) if places is not None else None
                if places is None or position is None:
                    lost += 1
                    continue
                graph = int(places.graph[position])
                assignment = self._id(rows, log, graph, batch.assignments[number], symbols.get(graph, ()))
                rows.add("call_symbols", call=int(places.call_id[position]), assignment=assignment)
        return lost

    def _id(self, rows: IndexRows, log: int, graph: int, found: Assignment, names: Sequence[str]) -> int:
        values = [_text(value) for value in found.value]
        key = (graph, *found.symbol, *found.launches, *values)
        if key not in self._ids:
            self._ids[key] = number = rows.new_id("symbol_values")
            for symbol, launches, value in zip(found.symbol, found.launches, values, strict=True):
                if 0 <= symbol < len(names):
                    rows.add(
                        "symbol_values",
                        assignment=number,
                        log=log,
                        symbol=names[symbol],
                        launches=launches,
                        value=value,
                    )
        return self._ids[key]


def _text(value: object) -> str | None:
    """Return the value as Python prints it, or None if it is not a number."""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    return value if isinstance(value, str) and value in _NO_NUMBERS else None
