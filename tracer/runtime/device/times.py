"""Measures launches on the device: with events around each launch of a few calls, and by timestamps in CUDA graphs.

Two events per launch take about 9 us on the host, so only calls number 2, 8, 32, 128, ... of a function are measured.
So that an event pair does not include time in which the device waits for the host, the device is kept busy at the
begin of such a call for about as long as the host took for an earlier one, at most 50 ms. Nothing waits for the
device: the times are read when a flush finds the last event done.

Each reading of values stores the times at which it began and ended on the device. In a replay of a CUDA graph, a
launch between two readings is timed by them (`between_readings`). Outside of graphs these times are not used, since
the device may have waited for the host in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.tracer.inductor import compat
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.schema.launches import DeviceTimes

MOST_DELAY_NS = 50_000_000
FIRST = 2


class EventTimer:
    """The measured calls of a process. The caller of `take` must have acquired a lock."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[GraphCall, list[Any]]] = deque()
        self._calls: dict[tuple[int, int], int] = {}
        self._host_ns: dict[tuple[int, int], int] = {}

    def wanted(self, call: GraphCall) -> Callable[[], None] | None:
        """Return the function to call before and after each launch of `call`, or None if it is not measured."""
        what = call.graph, call.function
        number = self._calls[what] = self._calls.get(what, 0) + 1
        if number < FIRST or not _is_sampled(number):
            return None
        import torch

        events: list[Any] = []

        def mark() -> None:
            if events and events[-1] is None:
                return
            try:
                record()
            except Exception:  # a capture has begun, or the device has failed: this call is not measured
                events.append(None)

        def record() -> None:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            events.append(event)

        self._waiting.append((call, events))
        compat.delay_device(min(self._host_ns.get(what, 0), MOST_DELAY_NS))
        return mark

    def ended(self, call: GraphCall) -> None:
        if call.mark is None:
            self._host_ns[call.graph, call.function] = call.end_ns - call.start_ns

    def take(self) -> list[DeviceTimes]:
        """Return the times of the measured calls that the device has finished, oldest first."""
        records = []
        while self._waiting:
            call, events = self._waiting[0]
            if call.end_ns == 0 or (events and events[-1] is not None and not events[-1].query()):
                break
            self._waiting.popleft()
            if events and events[-1] is not None and len(events) % 2 == 0:
                records.append(_times(call, events))
        return records


def _is_sampled(number: int) -> bool:
    """Return whether `number` is 2, 8, 32, 128, ..."""
    half = number // FIRST
    return number % FIRST == 0 and half & (half - 1) == 0 and half.bit_length() % 2 == 1


def _times(call: GraphCall, events: list[Any]) -> DeviceTimes:
    pairs = list(zip(events[0::2], events[1::2], strict=True))
    return DeviceTimes(
        call=[call.number] * len(pairs),
        launch=list(range(len(pairs))),
        duration_ns=[round(begin.elapsed_time(end) * 1e6) for begin, end in pairs],
        how="events",
    )


def between_readings(
    times: npt.NDArray[np.int64], rows: Sequence[int], read_at: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the launches that are alone between two readings, and the time between the two in ns.

    `times` has begin and end of each row of the readings in the order in which they ran, shape (n, 2), or zeros for
    rows that were not read; `rows` is the number of rows of each reading and `read_at` the number of launches before
    it. The result includes the gaps on both sides of a launch (about 1 us each). It assumes one stream: with several,
    it may include other kernels, and a launch with a negative time is left out. Raises ValueError if the sizes differ.
    """
    if len(rows) != len(read_at) or sum(rows) != len(times):
        raise ValueError("the readings do not have as many rows as there are times")
    counts, launched = np.asarray(rows, dtype=np.int64), np.asarray(read_at, dtype=np.int64)
    starts = (np.cumsum(counts) - counts)[counts > 0]
    if not len(starts):
        return [], []
    ran = times[:, 1] > 0
    begins = np.minimum.reduceat(np.where(ran, times[:, 0], np.iinfo(np.int64).max), starts)
    ends = np.maximum.reduceat(np.where(ran, times[:, 1], 0), starts)
    seen = ends > 0
    begins, ends, launched = begins[seen], ends[seen], launched[counts > 0][seen]
    between = begins[1:] - ends[:-1]
    alone = (launched[1:] - launched[:-1] == 1) & (between >= 0)
    return launched[:-1][alone].tolist(), between[alone].tolist()
