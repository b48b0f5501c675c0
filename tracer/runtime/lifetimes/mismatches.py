"""Builds the lifetime layout of a call from its events, and compares it with the expected one, also while it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from stepscope.tracer.runtime.lifetimes.holders import describe_holders
from stepscope.tracer.runtime.lifetimes.tracker import Entry, Event, Life
from stepscope.tracer.schema.memory import LifetimeLayout, LifetimeMismatch, MismatchKind
from stepscope.tracer.wrapper.expectations import Expectations, Expected, Unscheduled
from stepscope.tracer.wrapper.parsed import PointStorages

MOST_DESCRIBED = 8
"""Maximum number of mismatches that one message describes."""


class LifetimeError(RuntimeError):
    """Raised if a storage's lifetime has a mismatch in a recording with ``lifetimes="assert"``."""


class StorageMismatch(NamedTuple):
    kind: MismatchKind
    buffer: str
    storage: int | None
    storage_bytes: int
    expected: int | None
    actual: int | None
    by: Literal["schedule", "wrapper"]


class FoundMismatches(NamedTuple):
    mismatches: Sequence[StorageMismatch]
    holders: list[list[str]]
    """Holders of the storage that should be dead, for each mismatch."""


def compare(layout: LifetimeLayout, expectations: Expectations, owned: Collection[str] = ()) -> list[StorageMismatch]:
    """Return the mismatches of the storages in `layout` that have expectations.

    `owned` are the inputs whose memory had no other owner when the call began; the call cannot free the others.
    """
    due, deaths = _Due(expectations), dict(zip(layout.dead, layout.dead_at, strict=True))
    found = list(_allocations(layout, expectations.allocations))
    for storage in sorted(range(len(layout.name)), key=lambda number: layout.kind[number] == "input"):
        if (entry := due.of(layout, storage, owned)) is not None:
            found += _death(layout, storage, entry, deaths.get(storage))
    return found


class _Due:
    """The expectations for the deaths of storages, by name."""

    def __init__(self, expected: Expectations) -> None:
        self.storages = {entry.name: entry for entry in expected.storages}
        self.inputs = {
            name: Expected(name, dies, is_scheduled=False, scheduled=None) for name, dies in expected.inputs.items()
        }

    def of(self, layout: LifetimeLayout, storage: int, owned: Collection[str]) -> Expected | None:
        """Return the expectation for a storage of `layout`, or None if it has none."""
        name = layout.name[storage]
        if layout.kind[storage] == "input":
            return self.inputs.get(name) if name in owned else None
        return self.storages.get(name) if layout.met_as[storage] is None else None


def _allocations(layout: LifetimeLayout, found: Unscheduled) -> Iterator[StorageMismatch]:
    for name, size in found.missing:
        yield StorageMismatch("missing_allocation", name, None, size, None, None, "schedule")
    for storage, name in enumerate(layout.name):
        if name in found.extra and layout.kind[storage] == "allocated":
            yield _unexpected(layout, storage)


def _unexpected(layout: LifetimeLayout, storage: int) -> StorageMismatch:
    name, size, born = layout.name[storage], layout.storage_bytes[storage], layout.born[storage]
    return StorageMismatch("unexpected_allocation", name, storage, size, None, born, "schedule")


def _death(layout: LifetimeLayout, storage: int, entry: Expected, actual: int | None) -> Iterator[StorageMismatch]:
    by: Literal["schedule", "wrapper"] = "wrapper"
    due = entry.dies
    if actual == due and entry.is_scheduled:
        by, due = "schedule", entry.scheduled
    if actual == due:
        return
    is_late = due is not None and (actual is None or actual > due)
    kind: MismatchKind = "missing_death" if is_late else "unexpected_death"
    yield StorageMismatch(kind, layout.name[storage], storage, layout.storage_bytes[storage], due, actual, by)


def to_record(
    layout: LifetimeLayout, call: int, found: Sequence[StorageMismatch], holders: list[list[str]]
) -> LifetimeMismatch:
    """Return the record of `found`; `call` is the first call with this layout; `holders` has an entry per mismatch."""
    return LifetimeMismatch(
        graph=layout.graph,
        layout=layout.layout,
        call=call,
        kind=[entry.kind for entry in found],
        buffer=[entry.buffer for entry in found],
        storage=[entry.storage for entry in found],
        storage_bytes=[entry.storage_bytes for entry in found],
        expected=[entry.expected for entry in found],
        actual=[entry.actual for entry in found],
        expected_by=[entry.by for entry in found],
        holders=holders,
    )


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


class LifetimeWatch:
    """Compares a running call with its expectations; each look covers the changes since the last one."""

    def __init__(self, graph: int, function: int, points: Sequence[PointStorages], expected: Expectations) -> None:
        self._builder = LayoutBuilder(-1, graph, function, points)
        self._extra = expected.allocations.extra
        self._due = _Due(expected)
        self._due_at: dict[int, set[str]] = {}
        for entry in (*expected.storages, *self._due.inputs.values()):
            for position in (entry.dies, entry.scheduled if entry.is_scheduled else None):
                if position is not None:
                    self._due_at.setdefault(position, set()).add(entry.name)
        self._storages: dict[str, list[int]] = {}
        """Numbers of the storages that are followed, by name."""
        self._events = self._seen = self._dead = 0
        self._position = -1

    def look(self, life: Life, position: int, owned: Collection[str]) -> list[StorageMismatch]:
        """Return the new mismatches of a call before the launch `position`."""
        events, self._events = life.since(self._events)
        layout = self._builder.add(events)
        found = [
            entry for storage in range(self._seen, len(layout.name)) for entry in self._born(layout, storage, owned)
        ]
        died = dict(zip(layout.dead, layout.dead_at, strict=True))
        at_stake = {layout.name[storage] for storage in layout.dead[self._dead :]}
        at_stake |= {name for at in range(self._position + 1, position + 1) for name in self._due_at.get(at, ())}
        self._seen, self._dead, self._position = len(layout.name), len(layout.dead), position
        for name in sorted(at_stake & self._storages.keys()):
            entry = self._due.storages.get(name) or self._due.inputs[name]
            for storage in self._storages[name]:
                late = _death(layout, storage, entry, died.get(storage))
                found += [one for one in late if one.actual is not None or (one.expected or 0) <= position]
        return found

    def _born(self, layout: LifetimeLayout, storage: int, owned: Collection[str]) -> Iterator[StorageMismatch]:
        name, kind = layout.name[storage], layout.kind[storage]
        if self._due.of(layout, storage, owned) is not None:
            self._storages.setdefault(name, []).append(storage)
        if kind == "allocated" and name in self._extra:
            yield _unexpected(layout, storage)


def describe_mismatches(
    found: Sequence[StorageMismatch],
    holders: Sequence[Sequence[str]],
    launch: Callable[[int], str],
    position: int | None = None,
) -> str:
    """Describe `found` for the user of the program; `holders` has an entry per mismatch.

    `launch` describes a launch given its number; `position` is the call's current launch, or None at its end.
    """
    told = zip(found[:MOST_DESCRIBED], holders, strict=False)
    parts = [_describe(entry, launch, position) + describe_holders(held) for entry, held in told]
    if len(found) > MOST_DESCRIBED:
        parts.append(f"and {len(found) - MOST_DESCRIBED} more")
    return "; ".join(parts)


def _describe(entry: StorageMismatch, launch: Callable[[int], str], position: int | None) -> str:
    what = f"{entry.buffer} ({entry.storage_bytes} bytes)"
    if entry.kind == "missing_allocation":
        return f"{what} is scheduled but was never allocated"
    if entry.kind == "unexpected_allocation":
        return f"{what} was allocated but is not scheduled"
    due = "after the call" if entry.expected is None else _after(entry.expected, launch)
    if entry.actual is not None:
        fate = f"was freed {_after(entry.actual, launch)}"
    elif position is None:
        fate = "is still alive at the end of the call"
    else:
        fate = "is still alive then" if position == entry.expected else f"is still alive {_after(position, launch)}"
    return f"{what} should have been freed {due}, but {fate}"


def _after(position: int, launch: Callable[[int], str]) -> str:
    return f"after {launch(position - 1)}" if position > 0 else "before the first launch"
