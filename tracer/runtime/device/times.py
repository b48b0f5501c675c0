"""How long launches take on the device: events around each launch of a few calls, and timestamps inside CUDA graphs.

Two events cost a launch about 9 us of the host's time, so only calls number 2, 8, 32, 128, ... of a function
are measured. An event pair around a launch would also measure how long the device waits for the host; the device is
therefore kept busy at the begin of such a call for about as long as the host took for one before, at most 50 ms.
Nothing waits for the device: the times are read when a flush finds the last event done.

Each reading of values leaves the times at which it began and ended on the device. Where one launch lies between two
readings, a replay of a CUDA graph tells its time so (`between_readings`). Outside of graphs these times are not used:
there the device may have waited for the host in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.tracer.inductor import compat
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.schema.records import DeviceTimes

MOST_DELAY_NS = 50_000_000
FIRST = 2


class EventTimer:
    """The measured calls of a process. The caller of `take` holds a lock."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[GraphCall, list[Any]]] = deque()
        self._calls: dict[tuple[int, int], int] = {}
        self._host_ns: dict[tuple[int, int], int] = {}

    def wanted(self, call: GraphCall) -> Callable[[], None] | None:
        """What to call before and after each launch of `call`; None: this call is not measured."""
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
        """Times of the calls that the device has finished, oldest first."""
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
    """2, 8, 32, 128, ..."""
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
    """The launches that stand alone between two readings, and the nanoseconds between the two.

    `times`: begin and end of each row of the readings, in the order in which they ran, shape (n, 2); 0, 0: nothing was
    read. `rows`: how many rows each reading has; `read_at`: how many launches came before it. The times include the
    gaps on both sides of the launch (about 1 us each). They are of one clock, but suppose one stream: if the graph
    has several, a launch may be timed together with what ran beside it, and is left out when it seems to end before
    it began. Raises ValueError when the three do not fit each other.
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
