"""Joins the work of devices with the launches that enqueued it.

A piece of work belongs to the innermost launch of its host thread in which it was enqueued, or to the launch of a
replayed CUDA graph that its record names. All other work is kept without a launch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from stepscope.viewer.ingest.columns import Column, Ints, as_column
from stepscope.viewer.ingest.lenient_json import INT64
from stepscope.viewer.ingest.recorder.device_work import COLUMNS, DeviceWorkBatches, kind_of
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep
from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces
from stepscope.viewer.ingest.rows import IndexRows

_DEEPEST = 256
_REPLAYED = "replayed"


@dataclass(frozen=True)
class JoinedWork:
    """The work of a log in the order in which it ran, with its calls and launches; -1 is none or unknown."""

    names: list[str]
    columns: Mapping[str, Ints]
    call: Ints
    """Position of the call."""
    launch: Ints
    """Position of the launch."""

    def durations(self) -> tuple[Ints, Ints]:
        """Return the launches that have work, and the sum of its durations."""
        has = self.launch >= 0
        launches, which = np.unique(self.launch[has], return_inverse=True)
        sums = np.zeros(len(launches), np.int64)
        np.add.at(sums, which, self.columns["duration_ns"][has])
        return launches, sums

    def add_rows(self, places: LaunchPlaces, steps: Mapping[int, EndedStep], rows: IndexRows, log: int) -> None:
        """Add the work to the index."""
        found, columns = len(self.call), self.columns
        texts = as_column(self.names)[columns["name"]]
        kinds = as_column([kind_of(name) for name in self.names])[columns["name"]]
        step = np.where(self.call >= 0, places.call_step[self.call], _steps_at(places, steps, columns["enqueued_ns"]))
        added: dict[str, Column] = {
            "log": np.full(found, log), "device": columns["device"], "stream": columns["stream"],
            "start_ns": columns["start_ns"], "duration_ns": columns["duration_ns"], "kind": kinds, "name": texts,
            "thread": _known(columns["thread"]), "enqueued_ns": _known(columns["enqueued_ns"]), "step": _known(step),
            "call": np.ma.array(places.call_id[self.call], mask=self.call < 0),
            "launch": np.ma.array(places.launch_id[self.launch], mask=self.launch < 0),
        }  # fmt: skip
        rows.add_columns("device_work", added)


def joined_work(work: DeviceWorkBatches, places: LaunchPlaces, threads: Ints, states: Sequence[str]) -> JoinedWork:
    """Join the work of a log with its calls, whose `threads` and `states` are given by position."""
    names, columns = _columns(work)
    call = np.array([places.position.get(number, -1) for number in columns["call"].tolist()], dtype=np.int64)
    fits = (call >= 0) & (columns["launch"] >= 0) & (columns["launch"] < places.count[call])
    launch = np.where(fits, places.first[call] + columns["launch"], -1)
    joined = JoinedWork(names, columns, call, launch)
    for calls in _around(work, places, threads, states):
        _join_thread(joined, places, int(threads[calls[0]]), calls)
    places.let_go()
    return joined


def add_profiled_steps(work: DeviceWorkBatches, places: LaunchPlaces, rows: IndexRows, log: int) -> None:
    """Add the steps all of whose calls the profiler saw."""
    steps, which = np.unique(places.call_step, return_inverse=True)
    first, last = np.full(len(steps), np.iinfo(np.int64).max), np.zeros(len(steps), np.int64)
    np.minimum.at(first, which, places.call_start_ns)
    np.maximum.at(last, which, places.call_end_ns)
    windows = work.windows
    for step, start, end in zip(steps.tolist(), first.tolist(), last.tolist(), strict=True):
        place = bisect_right(windows, (start, INT64[-1])) - 1
        if place >= 0 and end <= windows[place][1]:
            rows.add("profiled_steps", log=log, step=step)


def _columns(work: DeviceWorkBatches) -> tuple[list[str], dict[str, Ints]]:
    """Return the distinct names, and the columns of all batches in the order in which the work ran."""
    numbers: dict[str, int] = {}
    places = [np.array([numbers.setdefault(text, len(numbers)) for text in one.names]) for one in work.batches]
    columns = {
        column: np.array(
            [
                -1 if value is None else value
                for value in chain.from_iterable(getattr(one, column) for one in work.batches)
            ],
            dtype=np.int64,
        )
        for column in COLUMNS
    }
    named = [
        place[np.array(one.name, dtype=np.int64)] for place, one in zip(places, work.batches, strict=True) if one.name
    ]
    columns["name"] = np.concatenate(named) if named else columns["name"]
    order = np.argsort(columns["start_ns"], kind="stable")
    return [*numbers], {name: column[order] for name, column in columns.items()}


def _around(work: DeviceWorkBatches, places: LaunchPlaces, threads: Ints, states: Sequence[str]) -> Iterator[Ints]:
    """Yield the calls that the host ran while the profiler did, by thread and depth, the outermost ones first."""
    ran = np.array([state != _REPLAYED for state in states], dtype=bool)
    began, ended = work.windows[0][0], max(ended for _, ended in work.windows)
    calls = np.flatnonzero(ran & (places.call_end_ns >= began) & (places.call_start_ns <= ended))
    depth = np.zeros(len(calls), dtype=np.int64)
    above = places.parent[calls]
    while (inside := above >= 0).any() and depth.max() < _DEEPEST:
        depth += inside
        above = np.where(inside, places.parent[np.maximum(above, 0)], -1)
    for level in range(int(depth.max(initial=-1)) + 1):
        for thread in np.unique(threads[calls[depth == level]]).tolist():
            yield calls[(depth == level) & (threads[calls] == thread)]


def _join_thread(joined: JoinedWork, places: LaunchPlaces, thread: int, calls: Ints) -> None:
    """Join work with calls of one thread that do not overlap, and with their launches."""
    open_to = (joined.columns["thread"] == thread) & (joined.columns["call"] < 0)
    work = np.flatnonzero(open_to)
    at = joined.columns["enqueued_ns"][work]
    inside = _containing(at, places.call_start_ns[calls], places.call_end_ns[calls])
    has = inside >= 0
    joined.call[work[has]] = calls[inside[has]]
    launches = np.concatenate([np.arange(places.first[c], places.first[c] + places.count[c]) for c in calls.tolist()])
    inside = _containing(at, places.launch_start_ns[launches], places.ends.values[launches])
    has = inside >= 0
    joined.launch[work[has]] = launches[inside[has]]


def _containing(at: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return which of the spans, which do not overlap, contains each time, or -1."""
    if not len(starts):
        return np.full(len(at), -1, dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    before = np.searchsorted(starts[order], at, side="right") - 1
    found = order[np.maximum(before, 0)]
    return np.where((before >= 0) & (ends[found] >= at), found, -1)


def _steps_at(places: LaunchPlaces, steps: Mapping[int, EndedStep], at: Ints) -> Ints:
    """Return the step of each time, which is the first that ends after it, else the last; -1 if the time is unknown."""
    numbers, which = np.unique(places.call_step, return_inverse=True)
    ends = np.zeros(len(numbers), np.int64)
    np.maximum.at(ends, which, places.call_end_ns)
    for index, number in enumerate(numbers.tolist()):
        ended = steps.get(number)
        if ended is not None and ended.end_ns is not None:
            ends[index] = max(ends[index], ended.end_ns)
    order = np.argsort(ends, kind="stable")
    place = np.minimum(np.searchsorted(ends[order], at, side="left"), len(numbers) - 1)
    return np.where(at >= 0, numbers[order[place]], -1)


def _known(column: Ints) -> Column:
    return np.ma.array(column, mask=column < 0)
