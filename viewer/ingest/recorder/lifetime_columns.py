"""Follows each storage from the first call that used it to its death, which any call may have recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepscope.tracer.schema.memory import LifetimeMismatch
from stepscope.viewer.ingest.columns import Flags, Ints
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.recorder.inner_calls import NEVER, InnerBytes, Known, Made, inner_bytes
from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces
from stepscope.viewer.ingest.recorder.lifetime_layouts import (
    UNKNOWN,
    JoinedLayouts,
    MeasuredCalls,
    add_layouts,
    layouts_of,
    masked,
    measured_calls,
)
from stepscope.viewer.ingest.recorder.live_columns import Storages, add_curve
from stepscope.viewer.ingest.recorder.memory_batches import Ids, MemoryBatches
from stepscope.viewer.ingest.rows import IndexRows

_MOST_JUMPS = 32


def add_lifetimes(batches: MemoryBatches, rows: IndexRows, log: int, places: LaunchPlaces | None, ids: Ids) -> None:
    """Add the layouts, calls, storages, curves and lifetime mismatches of one log."""
    layouts = layouts_of(batches)
    calls = measured_calls(batches, layouts, places)
    followed = _Followed(batches, layouts, calls, places, ids) if places is not None and len(calls.at) else None
    inner = followed.inner() if followed is not None else None
    layout_ids = add_layouts(batches, rows, log, layouts, calls, places, ids, inner)
    storages = events = 0
    if followed is not None and inner is not None:
        storages, events = followed.add(rows, log, layout_ids)
        call_id = followed.places.call_id[calls.at[inner.call]]
        rows.add_columns("inner_bytes", {"log": np.full(len(call_id), log), **inner._asdict(), "call": call_id})
        _add_left_behind(batches, rows, log, followed, layout_ids)
    elif any(batch.call for batch in batches.growth):
        batches.damage.add("unknown_storage", "storages left behind, but no call whose storages were tracked")
    if places is not None:
        _add_allocator(batches, rows, log, places)
    for mismatch in batches.mismatches:
        _add_mismatch(batches, rows, log, mismatch, layout_ids, layouts, places, ids)
    if batches.saw_lifetimes:
        rows.add(
            "lifetime_logs",
            log=log,
            calls=len(calls.at),
            storages=storages,
            events=events,
            looked_for_growth=batches.looked_for_growth,
        )


class _Deaths(NamedTuple):
    storage: Ints
    """Storage that died, as numbered by the first call that used it."""
    ns: Ints
    call: Ints
    """Position among the measured calls; `UNKNOWN` if it died outside of them."""
    position: Ints


class _Followed:
    """The storages of all measured calls; one that several calls use refers to the storage of the first call."""

    def __init__(
        self, batches: MemoryBatches, layouts: JoinedLayouts, calls: MeasuredCalls, places: LaunchPlaces, ids: Ids
    ) -> None:
        self._batches, self._ids, self.layouts, self.calls, self.places = batches, ids, layouts, calls, places
        length = layouts.length[calls.layout]
        self.length, self.offset = length, np.cumsum(length) - length
        count = int(length.sum())
        self.call = np.repeat(np.arange(len(length)), length)
        self.index = np.arange(count) - self.offset[self.call]
        self.row = layouts.start[calls.layout][self.call] + self.index
        self.root = self._roots(count)
        self.first = np.flatnonzero(self.root == np.arange(count))
        self.born_ns = self._time(self.call, layouts.ints["born"][self.row], layouts.is_input[self.row])
        deaths = self._deaths()
        self.deaths = deaths._replace(ns=np.maximum(deaths.ns, self.born_ns[deaths.storage]))

    def inner(self) -> InnerBytes:
        """Return the memory that inner calls allocated."""
        if not (self.places.parent[self.calls.at] >= 0).any():
            return InnerBytes(*np.empty((4, 0), dtype=np.int64))
        size, is_made = self.layouts.ints["storage_bytes"][self.row], ~self.layouts.is_input[self.row]
        died = np.full(len(self.root), NEVER, dtype=np.int64)
        died[self.deaths.storage] = self.deaths.ns
        of = self.first[is_made[self.first]]
        made = Made(self.call[of], size[of], self.born_ns[of], died[of])
        # If an earlier call than the first one uses the storage, an inner call of it allocated the storage.
        known = np.flatnonzero(is_made & (self.call < self.call[self.root]))
        born, dead = self.layouts.ints["born"][self.row[known]], self.layouts.deaths(NEVER)[self.row[known]]
        return inner_bytes(self.calls.at, self.places, made, Known(self.call[known], size[known], born, dead))

    def _roots(self, count: int) -> Ints:
        """Return for each storage that of the first call that used it."""
        ints = self.layouts.ints
        parent = np.arange(count)
        met = np.flatnonzero(ints["met_as"][self.row] != UNKNOWN)
        row, local = self.row[met], self.calls.local[self.call[met]]
        back, earlier = ints["calls_back"][row], ints["met_in"][row]
        by = self.calls.find(np.where(back != UNKNOWN, local - back, earlier))
        index = ints["met_as"][row]
        known = (by >= 0) & (index >= 0) & (index < self.length[by])
        if not known.all():
            self._batches.damage.add(
                "unknown_storage", f"{int((~known).sum()):,} storages that belong to no known call"
            )
        parent[met[known]] = self.offset[by[known]] + index[known]
        for _ in range(_MOST_JUMPS):
            above = parent[parent]
            if np.array_equal(above, parent):
                return parent
            parent = above
        return np.where(parent[parent] == parent, parent, np.arange(count))

    def find(self, local: Ints, index: Ints) -> Ints:
        """Return the storage of the first call for storage `index` of call `local`, a number in the log, or -1."""
        call = self.calls.find(local)
        known = (call >= 0) & (index >= 0) & (index < self.length[call])
        return np.where(known, self.root[np.where(known, self.offset[call] + index, 0)], -1)

    def add(self, rows: IndexRows, log: int, layout_ids: Ints) -> tuple[int, int]:
        """Add all rows. Returns the number of storages, and of their known births and deaths."""
        self._add_calls(rows, log, layout_ids)
        first, deaths = self.first, self.deaths
        row, born = self.row[first], self.born_ns[first]
        order = np.full(len(self.root), -1, dtype=np.int64)
        order[first] = np.arange(len(first))
        died = order[deaths.storage]
        self._add_survivors(rows, log, layout_ids, first, born, died, deaths)
        device, kind = self.layouts.device[row], self._kinds(first, died)
        for i in np.unique(device).tolist():
            here = np.flatnonzero(device == i)
            place = np.full(len(first), -1, dtype=np.int64)
            place[here] = np.arange(len(here))
            dead = np.flatnonzero(device[died] == i)
            size = self.layouts.ints["storage_bytes"][row[here]]
            part = Storages(born[here], size, kind[here], deaths.ns[dead], place[died[dead]])
            add_curve(rows, log, self.layouts.devices[i], part)
        return len(first), len(first) + len(died)

    def _kinds(self, first: Ints, died: Ints) -> Ints:
        """Return the index into `KINDS` of each storage."""
        by = np.full(len(first), UNKNOWN, dtype=np.int64)
        by[died] = self.deaths.call
        _, backward = self._meetings()
        is_input, stays = self.layouts.is_input[self.row[first]], by != self.call[first]
        conditions = [is_input, stays & backward[first], stays]
        return np.select(conditions, [0, 1, 2], default=3).astype(np.int64)

    def _add_calls(self, rows: IndexRows, log: int, layout_ids: Ints) -> None:
        at = self.calls.at
        columns = {
            "call": self.places.call_id[at], "log": np.full(len(at), log), "local_call": self.calls.local,
            "step": self.places.call_step[at], "layout": layout_ids[self.calls.layout],
        }  # fmt: skip
        rows.add_columns("measured_calls", columns)

    def _time(self, call: Ints, position: Ints, at_begin: Flags | None = None) -> Ints:
        """Return the start of the launch at `position` of a call, or the end of the call after its last launch."""
        places, at = self.places, self.calls.at[call]
        inside = position < places.count[at]
        ns = places.call_end_ns[at]
        if len(places.launch_start_ns):
            launch = places.first[at] + np.where(inside, position, 0)
            launch = np.minimum(launch, len(places.launch_start_ns) - 1)
            ns = np.where(inside, places.launch_start_ns[launch], ns)
        return ns if at_begin is None else np.where(at_begin, places.call_start_ns[at], ns)

    def _deaths(self) -> _Deaths:
        """Return the first death of each storage."""
        layouts, calls = self.layouts, self.calls
        length = layouts.dead_length[calls.layout]
        call = np.repeat(np.arange(len(length)), length)
        row = layouts.dead_start[calls.layout][call] + np.arange(len(call)) - (np.cumsum(length) - length)[call]
        storage = self.root[self.offset[call] + layouts.ints["dead"][row]]
        position = layouts.ints["dead_at"][row]
        outside = {name: np.array(column, dtype=np.int64) for name, column in self._batches.deaths.items()}
        late = self.find(outside["dead_call"], outside["dead_index"])
        if (late < 0).any():
            text = f"{int((late < 0).sum()):,} frees of storages that belong to no known call"
            self._batches.damage.add("unknown_storage", text)
        known = late >= 0
        nowhere = np.full(int(known.sum()), UNKNOWN, dtype=np.int64)
        found = _Deaths(
            np.concatenate([storage, late[known]]),
            np.concatenate([self._time(call, position), outside["dead_ns"][known]]),
            np.concatenate([call, nowhere]),
            np.concatenate([position, nowhere]),
        )
        return self._once(found)

    def _once(self, deaths: _Deaths) -> _Deaths:
        order = np.argsort(deaths.ns, kind="stable")
        chosen = np.full(len(self.root), -1, dtype=np.int64)
        chosen[deaths.storage[order[::-1]]] = order[::-1]
        first = chosen[deaths.storage]
        again = np.flatnonzero(first != np.arange(len(first)))
        one, other = deaths.call[again], deaths.call[first[again]]
        again = again[~(self._is_around(one, other) | self._is_around(other, one))]
        if len(again):
            text = f"{len(again):,} storages are freed twice; the first time counts"
            self._batches.damage.add("broken_lifetimes", text)
        chosen = chosen[chosen >= 0]
        return _Deaths(*(column[chosen] for column in deaths))

    def _is_around(self, outer: Ints, inner: Ints) -> Flags:
        """Return whether the calls `outer` run the calls `inner`, also indirectly: both then record the same death."""
        found = np.zeros(len(outer), dtype=bool)
        at = np.where(outer == UNKNOWN, UNKNOWN, self.calls.at[np.maximum(outer, 0)])
        above = np.where(inner == UNKNOWN, -1, self.calls.at[np.maximum(inner, 0)])
        for _ in range(_MOST_JUMPS):
            above = np.where(above >= 0, self.places.parent[np.maximum(above, 0)], -1)
            if not (above >= 0).any():
                break
            found |= above == at
        return found

    def _add_survivors(
        self, rows: IndexRows, log: int, layout_ids: Ints, first: Ints, born: Ints, died: Ints, deaths: _Deaths
    ) -> None:
        """Add the storages that were alive after the first call that used them."""
        ns, by, position = (np.full(len(first), UNKNOWN, dtype=np.int64) for _ in range(3))
        ns[died], by[died], position[died] = deaths.ns, deaths.call, deaths.position
        late = np.flatnonzero(by != self.call[first])
        if not len(late):
            return
        last_step, backward = self._meetings()
        root, row, places = first[late], self.row[first[late]], self.places
        calls = self.calls.at[self.call[root]]
        by_call = np.where(by[late] == UNKNOWN, UNKNOWN, places.call_id[self.calls.at[np.maximum(by[late], 0)]])
        device = np.array(self.layouts.devices, dtype=object)[self.layouts.device[row]]
        columns = {
            "log": np.full(len(late), log), "call": places.call_id[calls], "storage": self.index[root],
            "layout": layout_ids[self.calls.layout[self.call[root]]],
            "storage_bytes": self.layouts.ints["storage_bytes"][row], "device": device,
            "made": ~self.layouts.is_input[row], "last_step": last_step[root], "met_by_backward": backward[root],
            "born_ns": born[late], "died_ns": masked(ns[late]), "died_call": masked(by_call),
            "died_position": masked(position[late]),
        }  # fmt: skip
        rows.add_columns("survivors", columns)

    def _meetings(self) -> tuple[Ints, Flags]:
        """Return the last step in which a call used each storage, and whether a backward call did."""
        step = self.places.call_step[self.calls.at]
        graphs = np.unique(self.layouts.graph)
        of_backward = graphs[[self._ids.phase(graph) == "backward" for graph in graphs.tolist()]]
        is_backward = np.isin(self.places.graph[self.calls.at], of_backward)
        last_step = step[self.call]
        backward = np.zeros(len(self.root), dtype=bool)
        met = np.flatnonzero(self.root != np.arange(len(self.root)))
        np.maximum.at(last_step, self.root[met], step[self.call[met]])
        backward[self.root[met][is_backward[self.call[met]]]] = True
        return last_step, backward


def _add_allocator(batches: MemoryBatches, rows: IndexRows, log: int, places: LaunchPlaces) -> None:
    columns = {name: np.array(column, dtype=np.int64) for name, column in batches.allocator.items()}
    at = np.array([places.position.get(call, -1) for call in columns["call"].tolist()], dtype=np.int64)
    use = (at >= 0) & (columns["position"] >= 0)
    if not use.all():
        batches.damage.add("unknown_launch", f"{int((~use).sum()):,} figures of the allocator of unknown calls")
    if use.any():
        named = {name: masked(np.where(c < 0, UNKNOWN, c)[use]) for name, c in columns.items() if name != "call"}
        rows.add_columns("allocator", {"log": np.full(int(use.sum()), log), "call": places.call_id[at[use]], **named})


def _add_mismatch(
    batches: MemoryBatches,
    rows: IndexRows,
    log: int,
    value: LifetimeMismatch,
    layout_ids: Ints,
    layouts: JoinedLayouts,
    places: LaunchPlaces | None,
    ids: Ids,
) -> None:
    layout = layouts.number.get(value.layout)
    at = None if places is None else places.position.get(value.call)
    call = None if at is None or places is None else int(places.call_id[at])
    if layout is None:
        batches.damage.add("unknown_layout", f"mismatches of lifetime layout {value.layout}, which is not in the log")
    storages = 0 if layout is None else len(layouts.chosen[layout].name)
    columns = (value.kind, value.buffer, value.storage, value.storage_bytes, value.expected, value.actual)
    for kind, buffer, storage, size, expected, actual, by, holders in zip(
        *columns, value.expected_by, value.holders, strict=True
    ):
        known = storage if storage is not None and 0 <= storage < storages else None
        rows.add(
            "lifetime_mismatches",
            mismatch=rows.new_id("lifetime_mismatches"),
            log=log,
            graph=ids.graph(value.graph),
            layout=None if layout is None else int(layout_ids[layout]),
            call=call,
            kind=kind,
            buffer=buffer,
            storage=known,
            storage_bytes=size if size is None or size >= 0 else None,
            expected=expected,
            actual=actual,
            expected_by=by,
            holders=dumps(holders),
        )


def _add_left_behind(batches: MemoryBatches, rows: IndexRows, log: int, found: _Followed, layout_ids: Ints) -> None:
    for batch in batches.growth:
        call, index = (np.array(column, dtype=np.int64) for column in (batch.call, batch.index))
        storage = found.find(call, index)
        if (storage < 0).any():
            text = f"{int((storage < 0).sum()):,} storages left behind by calls that are not in the log"
            batches.damage.add("unknown_storage", text)
        use = storage >= 0
        root, by = storage[use], found.calls.at[found.call[storage[use]]]
        if not len(root):
            continue
        kept = np.flatnonzero(use).tolist()
        columns = {
            "log": [log] * len(kept),
            "call": found.places.call_id[by].tolist(),
            "storage": found.index[root].tolist(),
            "layout": layout_ids[found.calls.layout[found.call[root]]].tolist(),
            "holders": [dumps(batch.holders[i]) for i in kept],
            "freed_by_collection": [batch.freed_by_collection[i] for i in kept],
            "tensor_bytes": [batch.tensor_bytes[i] if i < len(batch.tensor_bytes) else None for i in kept],
            "at_step": [batch.at_step] * len(kept),
        }
        rows.extend("left_behind", columns)
