"""Turns the kernels, copies and fills that PyTorch's profiler saw on devices into records.

The profiler gives a piece of work and the host call that enqueued it the same number. All work of a replayed CUDA
graph has the number of one host call, so it is joined by its order."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stepscope.tracer.runtime.device.captured_nodes import ReplayedWork
from stepscope.tracer.schema.profiles import DeviceWork

AT_ONCE = 10_000
"""Maximum number of rows of a record."""
_HOST_CALLS = "cu", "hip"
"""Begins of the names of functions of CUDA and HIP, such as ``cudaLaunchKernel`` and ``cuLaunchKernelEx``."""
_REPLAYS = "GraphLaunch"
"""Part of the name of each of those that submit a graph."""
_Row = tuple[str, int, int, int, int, int | None, int | None, int | None, int]


def device_events(events: Iterable[Any]) -> list[Any]:
    """Return the events of work on devices, without ranges that the host has named, in the order in which they ran."""
    found = [event for event in events if not _is_host(event) and not event.is_user_annotation]
    return sorted(found, key=_start_us)


def device_work(
    events: Sequence[Any],
    work: Sequence[Any],
    replays: Sequence[ReplayedWork],
    clock: Callable[[float], int],
    began_ns: int,
    ended_ns: int,
) -> Iterator[DeviceWork]:
    """Yield records of `work`, which is a part of `events`; `clock` turns the profiler's us into ns of the launches."""
    host = {event.id: event for event in events if _is_host(event) and event.name.startswith(_HOST_CALLS)}
    rows = _rows(work, host, replays, clock)
    for first in range(0, len(rows), AT_ONCE):
        name, *columns = ([*column] for column in zip(*rows[first : first + AT_ONCE], strict=True))
        names = {text: index for index, text in enumerate(dict.fromkeys(name))}
        yield DeviceWork(began_ns, ended_ns, [*names], [names[text] for text in name], *columns)


def _rows(
    work: Sequence[Any], host: dict[int, Any], replays: Sequence[ReplayedWork], clock: Callable[[float], int]
) -> list[_Row]:
    of_call: defaultdict[int, list[Any]] = defaultdict(list)
    for event in work:
        of_call[event.id].append(event)
    rows: list[_Row] = []
    for number, events in of_call.items():
        caller = host.get(number)
        thread = caller.device_resource_id if caller is not None else None
        enqueued_ns = clock(_middle_us(caller)) if caller is not None else None
        of_graph = replays if caller is not None and _REPLAYS in caller.name else ()
        replay = next((one for one in of_graph if _contains(one, thread, enqueued_ns)), None)
        owners = _owners(events, replay)
        rows += [
            (event.name, event.device_index, event.device_resource_id, clock(_start_us(event)),
             round(event.time_range.elapsed_us() * 1000), thread, enqueued_ns, *owner)
            for event, owner in zip(events, owners, strict=True)
        ]  # fmt: skip
    return sorted(rows, key=lambda row: row[3])


def _owners(events: Sequence[Any], replay: ReplayedWork | None) -> list[tuple[int | None, int]]:
    """Return the call and the launch of each piece of work of a replay; several streams have no order of their own."""
    if replay is None:
        return [(None, -1)] * len(events)
    if len({(event.device_index, event.device_resource_id) for event in events}) > 1:
        replay = dataclasses.replace(replay, seen_before=())
    return replay.owners(len(events))


def _contains(replay: ReplayedWork, thread: int | None, at_ns: int | None) -> bool:
    return at_ns is not None and replay.thread == thread and replay.start_ns <= at_ns <= replay.end_ns


def _is_host(event: Any) -> bool:
    return bool(event.device_type.name == "CPU")


def _start_us(event: Any) -> float:
    return float(event.time_range.start)


def _middle_us(event: Any) -> float:
    """Return the middle of a host call: clocks are aligned to some microseconds, and launches last longer."""
    return _start_us(event) + float(event.time_range.elapsed_us()) / 2
