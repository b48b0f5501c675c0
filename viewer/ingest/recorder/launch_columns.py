"""Converts batches of launches to sorted columns of calls, launches and steps."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from stepscope.tracer.schema.launches import DeviceTimes
from stepscope.tracer.schema.ring_format import UNFINISHED
from stepscope.viewer.ingest.columns import Column, Flags, Ints, as_column
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches, function_name
from stepscope.viewer.ingest.rows import AT_ONCE_ROWS, IndexRows

_DEEPEST = 256
NOT_RETURNED = -1
UNTIMED = "printed"


@dataclass(frozen=True)
class LaunchPlaces:
    """The calls of a log by position, and its launches in the order of their submission."""

    position: dict[int, int]
    """Number of a call in the log -> its position."""
    graph: Ints
    """Graph of each call, as numbered in the log."""
    first: Ints
    """First launch of each call."""
    count: Ints
    """Number of launches of each call."""
    call_id: Ints
    call_step: Ints
    call_start_ns: Ints
    call_end_ns: Ints
    has_ended: Flags
    """Whether each call ended. If not, its launches may have only the values that were read before them."""
    parent: Ints
    """Position of the call around each call, or -1."""
    launch_start_ns: Ints
    launch_owner: Ints
    """Position of the call of each launch."""
    launch_local_site: Ints
    launch_id: Ints
    launch_call: Ints
    launch_step: Ints
    launch_site: Ints

    @cached_property
    def _by_site(self) -> tuple[Ints, Ints, int]:
        """Return the sorted keys of call and site, the launch of each, and the factor of the call in the keys."""
        sites = int(self.launch_local_site.max(initial=0)) + 1
        key = self.launch_owner * sites + self.launch_local_site
        order = np.argsort(key, kind="stable")
        return key[order], order, sites

    def launches(self, call: Ints, site: Ints, occurrence: Ints) -> Ints:
        """Return the launch for each call (a position), local site and occurrence, or -1."""
        keys, order, sites = self._by_site
        if not len(keys):
            return np.full(len(call), -1, dtype=np.int64)
        fits = (call >= 0) & (site >= 0) & (site < sites)
        key = np.where(fits, call * sites + np.where(fits, site, 0), -1)
        at = np.searchsorted(keys, key) + occurrence
        inside = np.minimum(at, len(keys) - 1)
        return np.where((at < len(keys)) & (keys[inside] == key), order[inside], -1)


def _no_places() -> LaunchPlaces:
    none, no_flags = np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    return LaunchPlaces(
        {}, none, none, none, none, none, none, none, no_flags, none, none, none, none, none, none, none, none
    )


NO_PLACES = _no_places()


def add_launches(
    batches: LaunchBatches,
    rows: IndexRows,
    log: int,
    steps: Mapping[int, EndedStep],
    functions: Mapping[int, list[str]],
    graph_id: Callable[[int], int],
    site_id: Callable[[int, int], int],
    times: Sequence[DeviceTimes] = (),
) -> tuple[LaunchPlaces | None, int]:
    """Add the steps of one log, and its calls and launches sorted by step and start.

    Returns their positions, and the number of device `times` that belong to no launch.
    """
    calls = {name: _ints(column) for name, column in batches.calls.items()}
    count = len(calls["call"])
    places, lost = None, sum(len(batch.call) for batch in times)
    if count:
        order = np.lexsort((calls["start_ns"], calls["step"]))
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count)
        ids = rank + rows.new_id("calls", count)
        columns = _call_columns(batches, log, calls, ids, functions, graph_id)
        rows.add_columns("calls", {name: column[order] for name, column in columns.items()})
        places, lost = _add_launches(batches, rows, log, calls, ids, site_id, times)
    _add_steps(rows, log, steps, calls)
    return places, lost


def _call_columns(
    batches: LaunchBatches,
    log: int,
    calls: dict[str, Ints],
    ids: Ints,
    functions: Mapping[int, list[str]],
    graph_id: Callable[[int], int],
) -> dict[str, Column]:
    parent = _parent_positions(calls["call"], batches.parents)
    names = [
        function_name(functions.get(graph, []), function)
        for graph, function in zip(calls["graph"].tolist(), calls["function"].tolist(), strict=True)
    ]
    return {
        "call": ids, "log": np.full(len(ids), log), "local_call": calls["call"],
        "graph": _map(calls["graph"], graph_id), "function": as_column(names), "step": calls["step"],
        "thread": calls["thread"], "parent": np.ma.array(ids[np.maximum(parent, 0)], mask=parent < 0),
        "depth": _depths(parent), "start_ns": calls["start_ns"],
        "duration_ns": np.ma.array(calls["duration_ns"], mask=[state == UNTIMED for state in batches.states]),
        "launches": calls["launches"], "state": as_column(batches.states),
    }  # fmt: skip


def _add_launches(
    batches: LaunchBatches,
    rows: IndexRows,
    log: int,
    calls: dict[str, Ints],
    call_ids: Ints,
    site_id: Callable[[int, int], int],
    times: Sequence[DeviceTimes],
) -> tuple[LaunchPlaces, int]:
    sites, starts, ends = (_ints(column) for column in batches.launches.values())
    owner = np.repeat(np.arange(len(call_ids)), calls["launches"])
    step = calls["step"][owner]
    order = np.lexsort((starts, step))
    ids = np.empty(len(sites), dtype=np.int64)
    ids[order] = np.arange(len(sites)) + rows.new_id("launches", len(sites))
    places = LaunchPlaces(
        position={number: i for i, number in enumerate(calls["call"].tolist())},
        graph=calls["graph"],
        first=np.cumsum(calls["launches"]) - calls["launches"],
        count=calls["launches"],
        call_id=call_ids,
        call_step=calls["step"],
        call_start_ns=calls["start_ns"],
        call_end_ns=calls["start_ns"] + np.maximum(calls["duration_ns"], 0),
        has_ended=np.array([state != UNFINISHED for state in batches.states], dtype=bool),
        parent=_parent_positions(calls["call"], batches.parents),
        launch_start_ns=starts,
        launch_owner=owner,
        launch_local_site=sites,
        launch_id=ids,
        launch_call=call_ids[owner],
        launch_step=step,
        launch_site=_map_pairs(calls["graph"][owner], sites, site_id),
    )
    device, lost = _device_times(places, times)

    def columns(part: Ints) -> dict[str, Column]:
        duration, on_device, of = ends[part] - starts[part], device[part], owner[part]
        return {
            "launch": ids[part], "log": np.full(len(part), log), "call": places.launch_call[part],
            "site": places.launch_site[part], "step": step[part], "thread": calls["thread"][of],
            "start_ns": starts[part],
            "duration_ns": np.ma.array(duration, mask=ends[part] < 0), "returned": ends[part] != NOT_RETURNED,
            "device_duration_ns": np.ma.array(on_device, mask=on_device < 0),
        }  # fmt: skip

    for first in range(0, len(order), AT_ONCE_ROWS):
        part = order[first : first + AT_ONCE_ROWS]
        rows.add_later("launches", len(part), partial(columns, part))
    return places, lost


def _device_times(places: LaunchPlaces, times: Sequence[DeviceTimes]) -> tuple[Ints, int]:
    """Return the device time of each launch, -1 if it was not measured, and the number of times without a launch."""
    device = np.full(len(places.launch_id), -1, dtype=np.int64)
    lost = 0
    for batch in times:
        call = np.array([places.position.get(call, -1) for call in batch.call], dtype=np.int64)
        launch, duration = (np.array(column, dtype=np.int64) for column in (batch.launch, batch.duration_ns))
        fits = (call >= 0) & (launch >= 0) & (launch < places.count[call]) & (duration >= 0)
        device[places.first[call[fits]] + launch[fits]] = duration[fits]
        lost += int((~fits).sum())
    return device, lost


def _parent_positions(call: Ints, parents: Sequence[int | None]) -> Ints:
    """Return the position of the parent of each call, or -1."""
    position = {number: i for i, number in enumerate(call.tolist())}
    found = [-1 if parent is None else position.get(parent, -1) for parent in parents]
    return np.array(found, dtype=np.int64)


def _add_steps(rows: IndexRows, log: int, steps: Mapping[int, EndedStep], calls: dict[str, Ints]) -> None:
    """Add the steps that ended, and those known only by their calls, which start with the first one."""
    numbers, where, per_step = np.unique(calls["step"], return_inverse=True, return_counts=True)
    launches = np.bincount(where, weights=calls["launches"], minlength=len(numbers)).astype(np.int64)
    first = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(first, where, calls["start_ns"])
    seen = {
        number: (start_ns, launched, called)
        for number, start_ns, launched, called in zip(
            numbers.tolist(), first.tolist(), launches.tolist(), per_step.tolist(), strict=True
        )
    }
    for number in sorted(steps.keys() | seen.keys()):
        first_ns, launched, called = seen.get(number, (None, 0, 0))
        step = steps.get(number) or EndedStep(None, None, first_ns or 0, None)
        rows.add(
            "steps",
            log=log,
            step=number,
            kind=step.kind,
            by_what=step.by,
            optimizers=step.who,
            start_ns=step.start_ns,
            end_ns=step.end_ns,
            duration_ns=step.duration_ns,
            compile_ns=step.compile_ns,
            launches=launched,
            calls=called,
        )


def _ints(values: array[int]) -> Ints:
    return np.frombuffer(values, dtype=np.int64) if values else np.empty(0, dtype=np.int64)


def _map(values: Ints, to: Callable[[int], int]) -> Ints:
    unique, where = np.unique(values, return_inverse=True)
    return np.array([to(value) for value in unique.tolist()], dtype=np.int64)[where]


def _map_pairs(left: Ints, right: Ints, to: Callable[[int, int], int]) -> Ints:
    lefts, where_left = np.unique(left, return_inverse=True)
    rights, where_right = np.unique(right, return_inverse=True)
    return _map(
        where_left * len(rights) + where_right,
        lambda pair: to(int(lefts[pair // len(rights)]), int(rights[pair % len(rights)])),
    )


def _depths(parent: Ints) -> Ints:
    """Return the number of calls around each call."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    for _ in range(_DEEPEST):
        inside = above >= 0
        if not inside.any():
            break
        depth += inside
        above = np.where(inside, parent[np.maximum(above, 0)], -1)
    return depth
