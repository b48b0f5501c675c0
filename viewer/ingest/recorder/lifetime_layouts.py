"""Joins the lifetime layouts of a log, finds the measured calls, and computes the peak of one call per layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.tracer.schema.memory import LifetimeLayout
from stepscope.viewer.ingest.columns import Column, Flags, Ints
from stepscope.viewer.ingest.recorder.inner_calls import InnerBytes
from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces
from stepscope.viewer.ingest.recorder.memory_batches import Ids, MemoryBatches
from stepscope.viewer.ingest.rows import IndexRows

UNKNOWN = np.iinfo(np.int64).min
_NO_DEVICE = "unknown"


@dataclass(frozen=True)
class JoinedLayouts:
    """All layouts of a log, concatenated: columns of storages and of deaths. `UNKNOWN` represents None."""

    chosen: list[LifetimeLayout]
    number: dict[int, int]
    """Number in the log -> position."""
    graph: Ints
    length: Ints
    start: Ints
    """First storage of each layout."""
    dead_length: Ints
    dead_start: Ints
    ints: dict[str, Ints]
    is_input: Flags
    device: Ints
    """Index into `devices`; the last one if an earlier call has recorded the device."""
    devices: list[str]

    def deaths(self, never: int) -> Ints:
        """Return the position at which each storage first dies in its layout."""
        dead = np.full(int(self.length.sum()), never, dtype=np.int64)
        at = np.repeat(self.start, self.dead_length) + self.ints["dead"]
        dead[at[::-1]] = self.ints["dead_at"][::-1]
        return dead

    def storages(self, layout: int) -> slice:
        return slice(int(self.start[layout]), int(self.start[layout] + self.length[layout]))


def layouts_of(batches: MemoryBatches) -> JoinedLayouts:
    chosen = list(batches.layouts.values())
    length, dead_length = (_lengths(chosen, name) for name in ("name", "dead"))
    devices = list(dict.fromkeys(d for layout in chosen for d in layout.device if d is not None))
    index = {name: i for i, name in enumerate([*devices, None])}
    columns = ("storage_bytes", "born", "site", "calls_back", "met_in", "met_as", "dead", "dead_at")
    return JoinedLayouts(
        chosen=chosen,
        number={number: i for i, number in enumerate(batches.layouts)},
        graph=np.array([layout.graph for layout in chosen], dtype=np.int64),
        length=length,
        start=np.cumsum(length) - length,
        dead_length=dead_length,
        dead_start=np.cumsum(dead_length) - dead_length,
        ints={name: _flat([getattr(layout, name) for layout in chosen]) for name in columns},
        is_input=_flat([[kind == "input" for kind in layout.kind] for layout in chosen]).astype(bool),
        device=_flat([[index[d] for d in layout.device] for layout in chosen]),
        devices=[*devices, _NO_DEVICE],
    )


def _lengths(layouts: Sequence[LifetimeLayout], name: str) -> Ints:
    return np.array([len(getattr(layout, name)) for layout in layouts], dtype=np.int64)


def _flat(columns: Sequence[Sequence[int | None]]) -> Ints:
    parts = [np.array([UNKNOWN if n is None else n for n in column], dtype=np.int64) for column in columns]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class MeasuredCalls:
    """Calls with recorded lifetimes, in the order of their numbers in the log."""

    local: Ints
    at: Ints
    """Position among the calls of the log."""
    layout: Ints

    def find(self, local: Ints) -> Ints:
        """Return the position of each call among these, or -1."""
        if not len(self.local):
            return np.full(len(local), -1, dtype=np.int64)
        found = np.minimum(np.searchsorted(self.local, local), len(self.local) - 1)
        return np.where(self.local[found] == local, found, -1)


def measured_calls(batches: MemoryBatches, layouts: JoinedLayouts, places: LaunchPlaces | None) -> MeasuredCalls:
    """Return calls of the log with a layout of their own graph, each once. All others are counted as damage."""
    local, number = (np.array(batches.calls[name], dtype=np.int64) for name in ("call", "layout"))
    position = {} if places is None else places.position
    at = np.array([position.get(call, -1) for call in local.tolist()], dtype=np.int64)
    layout = np.array([layouts.number.get(n, -1) for n in number.tolist()], dtype=np.int64)
    problem = _counter(batches)
    problem(at < 0, "unknown_launch", "lifetimes of calls that are not in the log")
    use = (at >= 0) & (layout >= 0)
    if use.any() and places is not None:
        fits = np.ones(len(use), dtype=bool)
        fits[use] = places.graph[at[use]] == layouts.graph[layout[use]]
        problem(~fits, "broken_lifetimes", "calls have the lifetime layout of another graph")
        use &= fits
    local, at, layout = local[use], at[use], layout[use]
    _, first = np.unique(local, return_index=True)
    twice = np.ones(len(local), dtype=bool)
    twice[first] = False
    problem(twice, "broken_lifetimes", "calls have lifetimes twice; the first are kept")
    return MeasuredCalls(local[first], at[first], layout[first])


def _counter(batches: MemoryBatches) -> Callable[[Flags, str, str], None]:
    def count(wrong: Flags, reason: str, text: str) -> None:
        if wrong.any():
            batches.damage.add(reason, f"{int(wrong.sum()):,} {text}")

    return count


@dataclass(frozen=True)
class _Peak:
    peak_bytes: int
    position: int
    base_bytes: int


def add_layouts(
    batches: MemoryBatches,
    rows: IndexRows,
    log: int,
    layouts: JoinedLayouts,
    calls: MeasuredCalls,
    places: LaunchPlaces | None,
    ids: Ids,
    inner: InnerBytes | None,
) -> Ints:
    """Add layouts and their storages. Returns the id of each layout."""
    count = len(layouts.chosen)
    first_id = rows.new_id("layouts", count)
    owned = _owned(batches, layouts, ids)
    first_call = np.full(count, -1, dtype=np.int64)
    first_call[calls.layout[::-1]] = np.arange(len(calls.at))[::-1]
    followed = np.bincount(calls.layout, minlength=count)
    late = 0
    for i, layout in enumerate(layouts.chosen):
        call = int(calls.at[first_call[i]]) if first_call[i] >= 0 else None
        launches = 0 if call is None or places is None else int(places.count[call])
        late += call is not None and max((*layout.born, *layout.dead_at), default=0) > launches
        inside = inner.of(int(first_call[i])) if inner is not None else None
        peak = _peak(layouts, i, owned[layouts.storages(i)], launches, inside)
        site = None
        if call is not None and places is not None and peak.position < launches:
            site = places.site_of_one(int(places.first[call]) + peak.position)
        met_first = int((layouts.ints["met_as"][layouts.storages(i)] == UNKNOWN).sum())
        rows.add(
            "layouts",
            layout=first_id + i,
            log=log,
            graph=ids.graph(layout.graph),
            function=ids.function(layout.graph, layout.function),
            storages=len(layout.name),
            events=met_first + len(layout.dead),
            calls=int(followed[i]),
            positions=launches,
            peak_bytes=peak.peak_bytes,
            peak_position=peak.position,
            peak_site=site,
            base_bytes=peak.base_bytes,
            first_call=None if call is None or places is None else int(places.call_id[call]),
        )
    if late:
        batches.damage.add("broken_lifetimes", f"{late:,} layouts have positions behind the end of their calls")
    layout_ids = np.arange(first_id, first_id + count)
    if int(layouts.length.sum()):
        rows.add_columns("layout_storages", _storage_columns(layouts, layout_ids, owned, ids))
    return layout_ids


def _owned(batches: MemoryBatches, layouts: JoinedLayouts, ids: Ids) -> Flags:
    """Return the storages of the measured series: allocated by the call, or inputs that the schedule may free."""
    owned = ~layouts.is_input
    for i, layout in enumerate(layouts.chosen):
        memory = batches.schedule_of(layout.graph, ids.function(layout.graph, layout.function))
        if memory is None:
            continue
        roles = zip(memory.buffers.name, memory.buffers.role, strict=True)
        freeable = {name for name, role in roles if role == "input"}
        if freeable:
            owned[layouts.storages(i)] |= np.array([name in freeable for name in layout.name], dtype=bool)
    return owned


def _peak(layouts: JoinedLayouts, layout: int, owned: Flags, launches: int, inside: tuple[Ints, Ints] | None) -> _Peak:
    """Return the maximum at launches or after the last. `inside` has the bytes that inner calls add at positions."""
    part = layouts.storages(layout)
    size, born = layouts.ints["storage_bytes"][part], np.minimum(layouts.ints["born"][part], launches)
    deaths = slice(layouts.dead_start[layout], layouts.dead_start[layout] + layouts.dead_length[layout])
    dead, dead_at = (layouts.ints[name][deaths] for name in ("dead", "dead_at"))
    change = np.zeros(launches + 1, dtype=np.int64)
    np.add.at(change, born[owned], size[owned])
    mine = owned[dead]
    dead, dead_at = dead[mine], np.minimum(dead_at[mine], launches)
    np.subtract.at(change, np.maximum(dead_at, born[dead]), size[dead])
    live = np.cumsum(change)
    if inside is not None:
        live[inside[0]] += inside[1]
    position = int(live.argmax())
    return _Peak(int(live[position]), position, int(size[~owned].sum()))


def _storage_columns(layouts: JoinedLayouts, layout_ids: Ints, owned: Flags, ids: Ids) -> dict[str, Column]:
    count = int(layouts.length.sum())
    of = np.repeat(np.arange(len(layouts.chosen)), layouts.length)
    sites = [
        ids.known_site(layout.graph, site) if site is not None else None
        for layout in layouts.chosen
        for site in layout.site
    ]
    device = np.array([*layouts.devices[:-1], None], dtype=object)[layouts.device]
    return {
        "layout": layout_ids[of], "storage": np.arange(count) - layouts.start[of],
        "name": _objects([name for layout in layouts.chosen for name in layout.name]),
        "kind": _objects([kind for layout in layouts.chosen for kind in layout.kind]),
        "storage_bytes": layouts.ints["storage_bytes"], "device": device, "born": layouts.ints["born"],
        "site": masked(_flat([sites])),
        **{name: masked(layouts.ints[name]) for name in ("calls_back", "met_in", "met_as")},
        "dead": masked(layouts.deaths(UNKNOWN)), "is_owned": owned,
    }  # fmt: skip


def _objects(values: Sequence[object]) -> Column:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def masked(column: Ints) -> Column:
    """Return the column with `UNKNOWN` masked, which becomes NULL."""
    return np.ma.array(column, mask=column == UNKNOWN)
