"""Builds the layout of a call from its events, at its end or while it is running."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from stepscope.tracer.runtime.lifetimes.life import Entry, Event, Life
from stepscope.tracer.runtime.lifetimes.mismatches import Progress, StorageMismatch
from stepscope.tracer.schema.memory import LifetimeLayout
from stepscope.tracer.wrapper.expectations import Expectations
from stepscope.tracer.wrapper.parsed import PointStorages


class LifetimeWatch:
    """Compares the storages of a running call with their expectations."""

    def __init__(self, graph: int, function: int, points: Sequence[PointStorages], expected: Expectations) -> None:
        self._builder = LayoutBuilder(-1, graph, function, points)
        self._progress = Progress(expected)
        self._seen = 0

    def look(self, life: Life, launches: int, owned: Collection[str]) -> list[StorageMismatch]:
        """Return the mismatches that are new since the last look; `launches` is the number of launches so far."""
        events, self._seen = life.since(self._seen)
        return self._progress.look(self._builder.add(events), launches, owned)


class LayoutBuilder:
    """Builds a layout from the events of a call as they occur."""

    def __init__(self, layout: int, graph: int, function: int, points: Sequence[PointStorages]) -> None:
        self._points = points
        self.result = LifetimeLayout(layout, graph, function, [], [], [], [], [], [], [], [], [], [], [])

    def add(self, events: Sequence[Event]) -> LifetimeLayout:
        for event in events:
            if event[0] < 0:
                self.result.dead.append(-1 - event[0])
                self.result.dead_at.append((event[1] + 2) // 3)
            else:
                self._seen(self._points[event[0]], event[1] // 3, event[2:])
        return self.result

    def _seen(self, point: PointStorages, position: int, entries: Sequence[Any]) -> None:
        if point.kind == "allocated":
            seen: list[tuple[str, str | None, Entry]] = list(zip(point.names, point.devices, entries, strict=True))
        elif point.kind == "input":
            pairs = [e if e is not None and len(e) == 2 else (None, e) for e in entries]
            seen = [(name, *pair) for name, pair in zip(point.names, pairs, strict=True)]
        else:  # the storage existed while the launch that returned it ran
            seen, position = list(entries), max(position - 1, 0)
        for name, device, entry in seen:
            self._storage(point, position, name, device, entry)

    def _storage(self, point: PointStorages, position: int, name: str, device: str | None, entry: Entry) -> None:
        if entry is None:
            return
        back, call, index, size = (None, None, None, entry) if isinstance(entry, int) else entry
        result = self.result
        result.name.append(name)
        result.kind.append(point.kind)
        result.storage_bytes.append(size)
        result.device.append(device)
        result.born.append(position)
        result.site.append(point.site)
        result.calls_back.append(back)
        result.met_in.append(call)
        result.met_as.append(index)
