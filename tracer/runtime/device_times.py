"""How long launches take on the device: events around each launch of a few calls.

Two events cost a launch about 9 us of the host's time, so only calls number 2, 8, 32, 128, ... of a function
are measured. An event pair around a launch would also measure how long the device waits for the host; the device is
therefore kept busy at the begin of such a call for about as long as the host took for one before, at most 50 ms.
Nothing waits for the device: the times are read when a flush finds the last event done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracer.inductor import compat
from tracer.records import DeviceTimes

if TYPE_CHECKING:
    from tracer.runtime.launches import Call

MOST_DELAY_NS = 50_000_000
FIRST = 2


class EventTimer:
    """The measured calls of a process. The caller of `take` holds a lock."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Call, list[Any]]] = deque()
        self._calls: dict[tuple[int, int], int] = {}
        self._host_ns: dict[tuple[int, int], int] = {}

    def wanted(self, call: Call) -> Callable[[], None] | None:
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

    def ended(self, call: Call) -> None:
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


def _times(call: Call, events: list[Any]) -> DeviceTimes:
    pairs = list(zip(events[0::2], events[1::2], strict=True))
    return DeviceTimes(
        call=[call.number] * len(pairs),
        launch=list(range(len(pairs))),
        duration_ns=[round(begin.elapsed_time(end) * 1e6) for begin, end in pairs],
        how="events",
    )
