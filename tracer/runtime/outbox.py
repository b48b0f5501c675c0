"""Gathers calls, step marks, lifetimes, times and values of a recording until they are written in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.log.launch_ring import LaunchRing, RingBlock, SymbolValues, is_blocking
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.device.cuda_graphs import CudaGraphCalls, flush_devices
from stepscope.tracer.runtime.device.times import EventTimer
from stepscope.tracer.runtime.lifetimes.kept_tensors import KeptSink, KeptTensorsWatch
from stepscope.tracer.runtime.lifetimes.trackers import LifetimeTrackers
from stepscope.tracer.runtime.values.batches import PendingValues
from stepscope.tracer.schema.launches import CallGaps, Calls, CallsInBackward, Launches
from stepscope.tracer.schema.process_ends import Overhead
from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.scalars import Assignment, CallSymbols
from stepscope.tracer.schema.steps import StepMarks
from stepscope.tracer.steps import PossibleStepEnd

FLUSH_NS = 250_000_000
FLUSH_STEP_NS = 100_000_000
MOST_CALLS = 4096
MOST_LAUNCHES = 16_384
MOST_MARKS = 4096
NO_END = -1


class OutboxSink(KeptSink, Protocol):
    """The part of the recorder that the outbox needs."""

    cuda_graphs: CudaGraphCalls
    running: dict[int, GraphCall]

    def write(self, record: Record) -> None: ...
    def guarded(self, where: str, function: Callable[..., None], *arguments: Any) -> None: ...


class Outbox:
    """Gathers data of calls, and writes it in batches. Callers must have acquired a lock."""

    def __init__(
        self,
        sink: OutboxSink,
        config: TraceConfig,
        ring: LaunchRing,
        *,
        may_compile: bool = False,
        per_launch_ns: float = 0.0,
    ) -> None:
        """Create the outbox; a forked child already knows whether it may compile, and what a launch costs."""
        self._sink, self._ring = sink, ring
        self.pending = PendingRows(ring)
        self.timer = EventTimer()
        self.lifetimes = LifetimeTrackers(config, may_compile)
        self.kept_tensors = KeptTensorsWatch(sink)
        self.values = PendingValues()
        self.overhead = OverheadMeter(per_launch_ns)
        self._is_flushing = False
        self._flushed_ns = time.perf_counter_ns()

    def start(self) -> None:
        self._flushed_ns = time.perf_counter_ns()
        self.overhead.start()

    def add_call(self, call: GraphCall) -> bool:
        """Add a call that has ended; return whether it is time to flush."""
        self.pending.add_call(call)
        if call.readings:
            self.values.add(call)
        due = call.end_ns - self._flushed_ns > FLUSH_NS or self.pending.is_much
        has_values = bool(call.readings or call.rows_written)
        return due or (has_values and is_blocking())  # the search for a crash needs the last values at once

    def end_calls(self) -> None:
        """Add the calls that are still running in other threads, with their launches so far."""
        now_ns = time.perf_counter_ns()
        for number, call in list(self._sink.running.items()):
            if call.hooks is not None and call.start_ns:
                self.pending.add_call(call.unfinished(now_ns))
            del self._sink.running[number]

    def flush(self, wait: bool) -> None:
        """Write the calls that have ended, and the values that have arrived from devices; with `wait`, all values."""
        if self._is_flushing:  # a signal handler runs a graph during a flush
            return
        self._is_flushing = True
        try:
            self._flush(wait)
        finally:
            self._is_flushing = False

    def is_step_due(self) -> bool:
        """Return whether the end of a step should flush; short steps share a batch, which is cheaper."""
        return time.perf_counter_ns() - self._flushed_ns > FLUSH_STEP_NS

    def write_all(self, take: Callable[[], Iterable[Record]]) -> None:
        for record in take():
            self._sink.write(record)

    def end_lifetimes(self, last_step: int) -> None:
        """Write what the steps have left alive when the recording ends."""
        self._sink.guarded("kept tensors", self.kept_tensors.at_end, last_step)
        self.write_all(lambda: self.lifetimes.end(last_step))

    def _flush(self, wait: bool) -> None:
        self._flushed_ns = time.perf_counter_ns()
        self._ring.check_file()
        batch = self.pending.take()
        self.overhead.launches += batch.launches
        self.write_all(lambda: records_of(batch.calls))
        if batch.marks:
            self._sink.write(marks_record(batch.marks))
        self.pending.written(batch)
        self.write_all(lambda: self.lifetimes.batches(batch.calls))
        if not self._sink.cuda_graphs.is_capturing():  # querying a device could break the capture
            self._sink.guarded("devices", flush_devices)
            self._sink.guarded("device times", self.write_all, self.timer.take)
        self._sink.guarded("values", self.write_all, lambda: self.values.take(wait))


class PendingBatch(NamedTuple):
    """Rows that are written to the log together."""

    calls: list[GraphCall]
    launches: int
    marks: list[tuple[PossibleStepEnd, RingBlock | None]]


class PendingRows:
    """Collects ended calls and marks of steps until they are written; meanwhile the launch ring has them.

    It is thread-safe, but the caller of `take` must have acquired a lock.
    """

    def __init__(self, ring: LaunchRing) -> None:
        self._ring = ring
        self._calls: list[GraphCall] = []
        self._marks: list[tuple[PossibleStepEnd, RingBlock | None]] = []
        self._launches = 0

    def __bool__(self) -> bool:
        return bool(self._calls or self._marks)

    @property
    def is_much(self) -> bool:
        """Whether there are enough rows to write them at once."""
        return self._launches > MOST_LAUNCHES or len(self._calls) > MOST_CALLS or len(self._marks) > MOST_MARKS

    def add_call(self, call: GraphCall) -> None:
        self._calls.append(call)
        self._launches += (len(call.rows) + 1) // 3

    def add_mark(self, mark: PossibleStepEnd) -> None:
        self._marks.append((mark, self._ring.step_mark(mark.what, mark.who, mark.thread, mark.ns)))

    def take(self) -> PendingBatch:
        calls, self._calls = self._calls, []
        launches, self._launches = self._launches, 0
        marks = self._marks[:]
        del self._marks[: len(marks)]  # another thread may have added one meanwhile
        return PendingBatch(calls, launches, marks)

    def written(self, batch: PendingBatch) -> None:
        """Release the ring's blocks of `batch`, which is in the log now."""
        for call in batch.calls:
            self._ring.give_back(call.block)
            self._ring.give_back(call.symbol_block)
            call.block = call.symbol_block = None
        for _, block in batch.marks:
            self._ring.give_back(block)


class OverheadMeter:
    """Adds up the time that one recording costs the program."""

    def __init__(self, per_launch_ns: float) -> None:
        """Begin the time of a recording in which a launch costs `per_launch_ns`, or what `start` measures."""
        self.hook_ns = self.launches = 0
        self.per_launch_ns = per_launch_ns
        self._stats_ns: int | None = None
        self._started_ns = time.perf_counter_ns()

    def start(self) -> None:
        """Begin the time of the recording, and measure the cost of one launch."""
        self._started_ns = time.perf_counter_ns()
        self.per_launch_ns = cost_of_a_launch()

    def add_call(self, call: GraphCall) -> None:
        """Add the cost of a call that has ended, including the time since its end."""
        stats_ns = call.stats_ns + getattr(call.read, "taken_ns", 0)
        if stats_ns:
            self._stats_ns = (self._stats_ns or 0) + stats_ns
        self.hook_ns += call.cost_ns + stats_ns + time.perf_counter_ns() - call.end_ns

    def to_record(self, log_bytes: int, failures: int) -> Overhead:
        hook_ns = int(self.hook_ns + self.launches * self.per_launch_ns)
        wall_ns = time.perf_counter_ns() - self._started_ns
        return Overhead(hook_ns, wall_ns, log_bytes, self.launches, failures, self._stats_ns)


def cost_of_a_launch() -> float:
    """Return the measured time of the statements inserted for one launch, in ns."""
    rows: list[int] = []
    now = time.perf_counter_ns
    look = bytearray(1)
    rounds = 1000
    started = now()
    for _ in range(rounds):
        if look[0]:
            continue
        rows.append(0)
        rows.append(now())
        rows.append(now())
    return (now() - started) / rounds


def records_of(calls: Sequence[GraphCall]) -> Iterator[Launches | CallsInBackward | CallGaps | CallSymbols]:
    if calls:
        yield to_batch(calls)
    if in_backward := [call.number for call in calls if call.in_backward]:
        yield CallsInBackward(in_backward)
    if gaps := [(call.number, *call.gap) for call in calls if call.gap is not None]:
        yield CallGaps(*map(list, zip(*gaps, strict=True)))
    yield from symbols_of(calls)


def to_batch(calls: Sequence[GraphCall]) -> Launches:
    rows: list[int] = []
    for call in calls:
        rows += call.rows
        if len(call.rows) % 3 == 2:
            rows.append(NO_END)
        elif len(call.rows) % 3:  # a signal handler raised before the launch began
            del rows[-1]
    return Launches(
        calls=Calls(
            call=[c.number for c in calls],
            graph=[c.graph for c in calls],
            function=[c.function for c in calls],
            step=[c.step for c in calls],
            thread=[c.thread for c in calls],
            parent=[c.parent.number if c.parent else None for c in calls],
            start_ns=[c.start_ns for c in calls],
            duration_ns=[c.end_ns - c.start_ns for c in calls],
            launches=[(len(c.rows) + 1) // 3 for c in calls],
            state=[c.state for c in calls],
        ),
        site=rows[0::3],
        start_ns=rows[1::3],
        end_ns=rows[2::3],
    )


def symbols_of(calls: Sequence[GraphCall]) -> Iterator[CallSymbols]:
    """Yield one record of all calls that have symbols, or nothing if none has."""
    numbers: dict[tuple[object, ...], int] = {}
    assignments: list[Assignment] = []
    assigned: list[int] = []
    known = [call for call in calls if call.symbols]
    for call in known:
        key = (*call.symbols, *(type(value) for one in call.symbols for value in one.values))  # True is equal to 1
        if key not in numbers:
            numbers[key] = len(assignments)
            assignments.append(_assignment(call.symbols))
        assigned.append(numbers[key])
    if known:
        yield CallSymbols([call.number for call in known], assigned, assignments)


def _assignment(found: Sequence[SymbolValues]) -> Assignment:
    return Assignment(
        symbol=[symbol for one in found for symbol in one.symbols],
        launches=[one.launches for one in found for _ in one.symbols],
        value=[value for one in found for value in one.values],
    )


def marks_record(marks: Sequence[tuple[PossibleStepEnd, RingBlock | None]]) -> StepMarks:
    return StepMarks(*(list(column) for column in zip(*(mark for mark, _ in marks), strict=True)))
