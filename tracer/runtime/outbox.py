"""Gathers calls, step marks, lifetimes, times and values of a recording until they are written in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.log.launch_ring import LaunchRing
from stepscope.tracer.log.pending import PendingRows, to_record
from stepscope.tracer.log.ring_blocks import is_blocking
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.device.cuda_graphs import CudaGraphCalls, flush_devices
from stepscope.tracer.runtime.device.times import EventTimer
from stepscope.tracer.runtime.launch_columns import records_of
from stepscope.tracer.runtime.lifetimes.trackers import LifetimeTrackers
from stepscope.tracer.runtime.overhead import OverheadMeter
from stepscope.tracer.runtime.values.batches import PendingValues
from stepscope.tracer.schema.records import Record

FLUSH_NS = 250_000_000
FLUSH_STEP_NS = 100_000_000


class OutboxSink(Protocol):
    """The part of the recorder that the outbox needs."""

    cuda_graphs: CudaGraphCalls
    running: dict[int, GraphCall]

    def write(self, record: Record) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class Outbox:
    """Gathers data of calls, and writes it in batches. Callers must have acquired a lock."""

    def __init__(self, sink: OutboxSink, config: TraceConfig, ring: LaunchRing) -> None:
        self._sink, self._ring = sink, ring
        self.pending: PendingRows[GraphCall] = PendingRows(ring)
        self.timer = EventTimer()
        self.lifetimes = LifetimeTrackers(config)
        self.values = PendingValues()
        self.overhead = OverheadMeter()
        self._is_flushing = False
        self._flushed_ns = time.perf_counter_ns()

    def start(self) -> None:
        self._flushed_ns = time.perf_counter_ns()
        self.overhead.start()

    def after_fork(self, config: TraceConfig, ring: LaunchRing, may_compile: bool) -> None:
        """Start again in a forked child; the parent writes what was gathered."""
        self._ring, self.pending = ring, PendingRows(ring)
        self.timer = EventTimer()
        self.lifetimes = LifetimeTrackers(config, may_compile)
        self.values.again()
        self.overhead.forget()
        self._is_flushing = False
        self._flushed_ns = time.perf_counter_ns()

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

    def _flush(self, wait: bool) -> None:
        self._flushed_ns = time.perf_counter_ns()
        self._ring.check_file()
        batch = self.pending.take()
        self.overhead.launches += batch.launches
        self.write_all(lambda: records_of(batch.calls))
        if batch.marks:
            self._sink.write(to_record(batch.marks))
        self.pending.written(batch)
        self.write_all(lambda: self.lifetimes.batches(batch.calls))
        if not self._sink.cuda_graphs.is_capturing():  # querying a device could break the capture
            self._guarded("devices", flush_devices)
            self._guarded("device times", self.write_all, self.timer.take)
        self._guarded("values", self.write_all, lambda: self.values.take(wait))

    def _guarded(self, where: str, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function`, so that the rest is written even after a device error."""
        try:
            function(*arguments)
        except Exception as error:
            self._sink.failed(where, error)
