"""Batches of launches -> sorted columns of calls, launches and steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from tracer.records import Calls, Launches, Step
from viewer.ingest.damage import Damage
from viewer.ingest.decode import BadPayload
from viewer.ingest.rows import Rows, as_column

Ints = npt.NDArray[np.int64]
_DEEPEST = 256
_CALL_COLUMNS = ("call", "graph", "function", "step", "thread", "start_ns", "duration_ns", "launches")


class LaunchColumns:
    """Collects the batches of one log."""

    def __init__(self, damage: Damage) -> None:
        self._damage = damage
        self._calls: dict[str, list[Ints]] = {name: [] for name in _CALL_COLUMNS}
        self._parents: list[int | None] = []
        self._states: list[str] = []
        self._sites: list[Ints] = []
        self._starts: list[Ints] = []
        self._host: list[Ints] = []
        self._device: list[Ints] = []

    def add(self, batch: Launches, line: int, byte: int) -> None:
        """Take in a batch. Raises BadPayload when its columns do not fit together."""
        calls, count = batch.calls, len(batch.calls.call)
        if any(len(getattr(calls, column.name)) != count for column in fields(Calls)):
            raise BadPayload("Launches.calls has columns of unequal length")
        rows = len(batch.site)
        device = batch.device_duration_ns
        if len(batch.start_ns) != rows or len(batch.host_duration_ns) != rows or len(device or batch.site) != rows:
            raise BadPayload("Launches has columns of unequal length")
        if sum(calls.launches) != rows or any(number < 0 for number in calls.launches):
            raise BadPayload("Launches.calls.launches does not add up to the rows of the batch")
        for name in _CALL_COLUMNS:
            self._calls[name].append(_ints(getattr(calls, name)))
        self._parents += calls.parent
        self._states += calls.state
        owner = np.repeat(np.arange(count), self._calls["launches"][-1])
        self._starts.append(_absolute(_ints(batch.start_ns), owner, self._calls["start_ns"][-1]))
        self._sites.append(_ints(batch.site))
        self._host.append(_ints(batch.host_duration_ns))
        self._device.append(_ints(device) if device else np.full(rows, -1, dtype=np.int64))

    def finish(
        self,
        rows: Rows,
        log: int,
        steps: Sequence[Step],
        functions: Mapping[int, list[str]],
        graph_id: Callable[[int], int],
        site_id: Callable[[int, int], int],
    ) -> None:
        """Add calls and launches, each sorted by step and start, and the steps they belong to."""
        calls = {name: _concatenate(parts) for name, parts in self._calls.items()}
        count = len(calls["call"])
        order = np.lexsort((calls["start_ns"], calls["step"]))
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count)
        first_call = rows.new_id("calls", count)
        parent = self._parent_positions(calls["call"])
        owner = np.repeat(np.arange(count), calls["launches"])
        if count:
            graphs = _map(calls["graph"], graph_id)
            names = [
                _function(functions.get(graph, []), function)
                for graph, function in zip(calls["graph"].tolist(), calls["function"].tolist(), strict=True)
            ]
            parent_ids = np.ma.array(first_call + rank[np.maximum(parent, 0)], mask=parent < 0)
            columns = {
                "call": first_call + rank, "log": np.full(count, log), "local_call": calls["call"], "graph": graphs,
                "function": as_column(names), "step": calls["step"], "thread": calls["thread"],
                "parent": parent_ids, "depth": _depths(parent), "start_ns": calls["start_ns"],
                "duration_ns": calls["duration_ns"], "launches": calls["launches"], "state": as_column(self._states),
            }  # fmt: skip
            rows.add_columns("calls", {name: column[order] for name, column in columns.items()})
        self._add_launches(rows, log, calls, owner, first_call + rank, site_id)
        _add_steps(rows, log, steps, calls)

    def _add_launches(
        self,
        rows: Rows,
        log: int,
        calls: dict[str, Ints],
        owner: Ints,
        call_ids: Ints,
        site_id: Callable[[int, int], int],
    ) -> None:
        sites, starts = _concatenate(self._sites), _concatenate(self._starts)
        if not len(sites):
            return
        step = calls["step"][owner]
        pairs, where = np.unique(np.stack((calls["graph"][owner], sites)), axis=1, return_inverse=True)
        ids = np.array([site_id(graph, site) for graph, site in pairs.T.tolist()], dtype=np.int64)
        host, device = _concatenate(self._host), _concatenate(self._device)
        columns = {
            "log": np.full(len(sites), log), "call": call_ids[owner], "site": ids[where.reshape(-1)], "step": step,
            "thread": calls["thread"][owner], "start_ns": starts, "duration_ns": np.ma.array(host, mask=host < 0),
            "device_duration_ns": np.ma.array(device, mask=device < 0),
        }  # fmt: skip
        order = np.lexsort((starts, step))
        launch = np.arange(len(sites)) + rows.new_id("launches", len(sites))
        rows.add_columns("launches", {"launch": launch} | {name: column[order] for name, column in columns.items()})

    def _parent_positions(self, call: Ints) -> Ints:
        """For each call the position of its parent, -1 without one."""
        position = {number: i for i, number in enumerate(call.tolist())}
        found = [-1 if parent is None else position.get(parent, -1) for parent in self._parents]
        return np.array(found, dtype=np.int64)


def _add_steps(rows: Rows, log: int, steps: Sequence[Step], calls: dict[str, Ints]) -> None:
    """Steps by their records; one whose record is lost starts with its first call."""
    starts = {step.step: step for step in steps if step.event == "start"}
    ends = {step.step: step for step in steps if step.event == "end"}
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
    for number in sorted(starts.keys() | ends.keys() | seen.keys()):
        start, end = starts.get(number), ends.get(number)
        first_ns, launched, called = seen.get(number, (None, 0, 0))
        start_ns = start.monotonic_ns if start else first_ns
        if start_ns is None and end is not None:
            start_ns = end.monotonic_ns
        known = end or start
        rows.add(
            "steps", log, number, known.kind if known else None, end.by if end else None, start_ns,
            end.monotonic_ns if end else None, launched, called,
        )  # fmt: skip


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _concatenate(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _absolute(relative: Ints, owner: Ints, call_start: Ints) -> Ints:
    """Start times of a batch: each row counts from the row before it in its call, the first from the call's start."""
    if not len(relative):
        return relative
    total = np.cumsum(relative)
    is_first = np.r_[True, owner[1:] != owner[:-1]]
    before = (total - relative)[is_first]
    runs = np.cumsum(is_first) - 1
    absolute: Ints = total - before[runs] + call_start[owner]
    return absolute


def _map(values: Ints, to: Callable[[int], int]) -> Ints:
    unique, where = np.unique(values, return_inverse=True)
    return np.array([to(value) for value in unique.tolist()], dtype=np.int64)[where]


def _depths(parent: Ints) -> Ints:
    """How many calls each call lies in."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    for _ in range(_DEEPEST):
        inside = above >= 0
        if not inside.any():
            break
        depth += inside
        above = np.where(inside, parent[np.maximum(above, 0)], -1)
    return depth


def _function(functions: list[str], index: int) -> str:
    return functions[index] if 0 <= index < len(functions) else f"function {index}"
