"""Converts batches of launches to sorted columns of calls, launches and steps."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from stepscope.tracer.schema.ring_format import UNFINISHED
from stepscope.viewer.ingest.columns import Column, Ints, as_column
from stepscope.viewer.ingest.long_columns import MappedInts, room_for
from stepscope.viewer.ingest.recorder.device_times import DeviceTimeColumns
from stepscope.viewer.ingest.recorder.device_work import DeviceWorkBatches
from stepscope.viewer.ingest.recorder.device_work_columns import JoinedWork, add_profiled_steps, joined_work
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches, function_name
from stepscope.viewer.ingest.recorder.launch_order import sorted_parts
from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces, SiteIds
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.spill import Kept, Spill

_DEEPEST = 256
NOT_RETURNED = -1
UNTIMED = "printed"


def add_launches(
    batches: LaunchBatches,
    rows: IndexRows,
    log: int,
    steps: Mapping[int, EndedStep],
    functions: Mapping[int, list[str]],
    graph_id: Callable[[int], int],
    site_id: Callable[[int, int], int],
    times: DeviceTimeColumns,
    work: DeviceWorkBatches,
) -> tuple[LaunchPlaces | None, int]:
    """Add the steps of one log, and its calls and launches sorted by step and start.

    Returns their positions, and the number of device `times` that belong to no launch.
    """
    calls = {name: _ints(column) for name, column in batches.calls.items()}
    count = len(calls["call"])
    places, lost = None, len(times)
    if count:
        order = np.lexsort((calls["start_ns"], calls["step"]))
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count)
        ids = rank + rows.new_id("calls", count)
        columns = _call_columns(batches, log, calls, ids, functions, graph_id)
        rows.add_columns("calls", {name: column[order] for name, column in columns.items()})
        places = _places(batches, calls, ids, site_id)
        joined = joined_work(work, places, calls["thread"], batches.states) if len(work) else None
        lost = _add_launches(places, rows, log, calls, times, joined)
        if joined is not None:
            joined.add_rows(places, steps, rows, log)
            add_profiled_steps(work, places, rows, log)
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


def _places(
    batches: LaunchBatches, calls: dict[str, Ints], call_ids: Ints, site_id: Callable[[int, int], int]
) -> LaunchPlaces:
    sites, starts, ends = (column.ints() for column in batches.launches.values())
    return LaunchPlaces(
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
        starts=starts,
        sites=sites,
        ends=ends,
        ids=room_for(len(sites.values)),
        site_ids=SiteIds(site_id),
    )


def _add_launches(
    places: LaunchPlaces,
    rows: IndexRows,
    log: int,
    calls: dict[str, Ints],
    times: DeviceTimeColumns,
    work: JoinedWork | None,
) -> int:
    """Add the launches; return the number of device `times` that belong to none."""
    device, lost = _device_times(places, times, work)

    def columns(kept: Kept) -> dict[str, Column]:
        part = kept()
        of, start_ns, end_ns = places.owner(part), places.starts.values[part], places.ends.values[part]
        found: dict[str, Column] = {
            "launch": places.launch_id[part], "log": np.full(len(part), log), "call": places.call_id[of],
            "site": places.site(part, of), "step": calls["step"][of], "thread": calls["thread"][of],
            "start_ns": start_ns, "duration_ns": np.ma.array(end_ns - start_ns, mask=end_ns < 0),
            "returned": end_ns != NOT_RETURNED,
        }  # fmt: skip
        on_device = np.full(len(part), -1) if device is None else device.values[part]
        found["device_duration_ns"] = np.ma.array(on_device, mask=on_device < 0)
        places.let_go()
        if device is not None:
            device.let_go()
        return found

    first_id, spill = rows.new_id("launches", len(places.sites.values)), Spill()
    for part in sorted_parts(places.first, places.count, calls["step"], _earliest(places), places.launch_start_ns):
        places.launch_id[part] = np.arange(first_id, first_id + len(part))
        first_id += len(part)
        rows.add_later("launches", len(part), partial(columns, spill.keep(part)))
        places.let_go()
    return lost


def _earliest(places: LaunchPlaces) -> Ints:
    """Return the first start of a launch of each call, and give each site its id in the order of the log."""
    found = np.zeros(len(places.first), dtype=np.int64)
    for part in places.ranges():
        count, starts = places.count[part.calls], places.launch_start_ns[part.launches]
        has = count > 0
        if has.any():
            found[part.calls][has] = np.minimum.reduceat(starts, places.first[part.calls][has] - part.launches.start)
            launch = np.arange(part.launches.start, part.launches.stop)
            places.site(launch, places.owner(launch))
    return found


def _device_times(
    places: LaunchPlaces, times: DeviceTimeColumns, work: JoinedWork | None
) -> tuple[MappedInts | None, int]:
    """Return the device time of each launch, -1 if it was not measured, and the number of times without a launch.

    What the profiler saw is more exact than other times, which include gaps around the work."""
    if not len(times) and work is None:
        return None, 0
    device, lost = room_for(len(places.launch_id)), 0
    for part in places.ranges():
        device.values[part.launches] = -1
        device.let_go()
    for numbers, launch, duration in times.parts():
        call = np.array([places.position.get(number, -1) for number in numbers.tolist()], dtype=np.int64)
        fits = (call >= 0) & (launch >= 0) & (launch < places.count[call]) & (duration >= 0)
        device.values[places.first[call[fits]] + launch[fits]] = duration[fits]
        lost += int((~fits).sum())
        device.let_go()
    if work is not None:
        launches, sums = work.durations()
        device.values[launches] = sums
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
