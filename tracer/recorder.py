"""Attaches the hooks, and writes what they record."""

from __future__ import annotations

import atexit
import errno
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator, suppress
from html import escape
from itertools import count
from pathlib import Path
from typing import Any, Literal

import orjson

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.inductor import compat, private_names, structured_log
from stepscope.tracer.inductor.data_waits import DataWaits
from stepscope.tracer.inductor.failed_compiles import FailedCompiles
from stepscope.tracer.inductor.frozen_weights import FrozenWeights
from stepscope.tracer.inductor.optimizer_steps import OptimizerSteps
from stepscope.tracer.inductor.plain_graphs import PlainGraphs
from stepscope.tracer.inductor.sources import provenance
from stepscope.tracer.inductor.wrapper_hook import WrapperHook
from stepscope.tracer.judge.checks import checks_of
from stepscope.tracer.judge.judge import Judge
from stepscope.tracer.log.launch_ring import LaunchRing
from stepscope.tracer.log.run_log import RunLog, reason_of
from stepscope.tracer.runtime import active, ticks
from stepscope.tracer.runtime.call_sites import CallSites
from stepscope.tracer.runtime.calls import GraphCall, recorded_calls_of_this_thread
from stepscope.tracer.runtime.device.cuda_graphs import CudaGraphCalls, forget_parent_devices
from stepscope.tracer.runtime.device.marks import DeviceMarks
from stepscope.tracer.runtime.gap_lines import GapLines
from stepscope.tracer.runtime.lifetimes import lifecycle_checks
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.runtime.outbox import Outbox
from stepscope.tracer.runtime.problems import Problems, failure_in, never_free
from stepscope.tracer.runtime.process import environment_number, run_record, uncaught_exception
from stepscope.tracer.runtime.process_exit import LONGEST_WAIT_S, ProcessExit, Reason
from stepscope.tracer.runtime.profiling import StepProfiler
from stepscope.tracer.runtime.raised_calls import RaisedCalls
from stepscope.tracer.runtime.red_zones import RedZones
from stepscope.tracer.runtime.values.save import TensorSaver, tensors_folder
from stepscope.tracer.runtime.whole_calls import WholeCalls
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.records import Run
from stepscope.tracer.schema.values import SavedTensor
from stepscope.tracer.steps import StepTracker


class Recorder(ContextDecorator):
    """Records the compiled programs of this process while it is attached; one recorder can be attached at a time.

    A recorder is a context manager, and a decorator that records each call of a function to a separate log. Nothing
    here raises into the recorded program: failures are counted, written to the log and reported once.
    """

    def __init__(self, config: TraceConfig, *, gives_way: bool = False) -> None:
        """Create a recorder; with `gives_way`, a recording that the program's code starts takes over (`active`)."""
        self.config, self.gives_way = config, gives_way
        self._graph_numbers, self._configuring = count(), threading.RLock()
        self._begin()

    def _begin(self) -> None:
        self._log = RunLog(self.config.directory, environment_number("RANK"), self._opening, self._on_log_failed)
        self._problems = Problems(self.write)
        self.describe_launch, self.skipped = self._log.describe_launch, self._problems.skipped
        self.ring, self.marks = self._new_ring()
        self._outbox = Outbox(self, self.config, self.ring)
        self.timer = self._outbox.timer
        self._steps = StepTracker(self._outbox.pending.add_mark, time.perf_counter_ns)
        self._whole_calls = WholeCalls(lambda begins: self.guarded("steps", self._steps.on_whole_call, begins))
        self._tap = structured_log.StructuredLogTap(self._on_structured, self.failed)
        self._hook: WrapperHook | None = None
        self._plain = PlainGraphs(self, lambda: next(self._graph_numbers), checks_of(self.config, self))
        self.profiler = StepProfiler(self, self.config.profile, compat.profiler_is_on)
        self._frozen, self._lines, hooks = FrozenWeights(self), GapLines(self), (FailedCompiles(self), DataWaits(self))
        self._parts = (*hooks, self._plain, self._whole_calls, self.profiler, self._frozen, self._lines)
        self._optimizers = OptimizerSteps(self.write, self._on_optimizer, self.failed, lambda: self._steps.last)
        self.before_fork, self.captured = self._lines.before_fork, self._optimizers.captured
        self._process_exit = ProcessExit(
            self._leave, self._stop, lambda: self.ring.expect_signals(), self._write_overhead
        )
        self.running: dict[int, GraphCall] = {}
        self._lock, self._running, self._has_ended = threading.RLock(), False, False
        self.cuda_graphs = CudaGraphCalls(self, counts_nodes=self.config.profile is not None)
        self.saver = TensorSaver(tensors_folder(self._log.writer.target), self.config.save_quota_bytes)
        self._device_error: str | None = None
        self.judge, self.red_zones = Judge(self.config, self, self.saver), RedZones(self)
        self.call_raised, self.called = RaisedCalls(self.write).add, CallSites(self.write).look

    @property
    def path(self) -> Path | None:
        """Path of the log; None until a record is written."""
        return self._log.writer.path

    @property
    def is_on(self) -> bool:
        """Whether calls that begin now are recorded."""
        return self._running and self.config.level != "off"

    @property
    def lifetimes(self) -> Tracker | None:
        """Tracker that follows the storages of calls that begin now; None if none does."""
        return self._outbox.lifetimes.tracker

    def _opening(self, forked: bool) -> tuple[Run, list[bytes]]:
        """Return the first records of a log."""
        return run_record(environment_number("RANK"), self.config, forked=forked), structured_log.known_strings()

    def _new_ring(self) -> tuple[LaunchRing, DeviceMarks]:
        ring = LaunchRing(self._log.begin, lambda why: self.skipped(Skipped("launches in flight", why)))
        return ring, DeviceMarks(ring, lambda why: self.skipped(Skipped("what the device has finished", why)))

    def start(self, first: logging.LogRecord | None = None) -> Recorder:
        """Attach this recorder, or report that another one is attached. After `stop`, a new log begins.

        `first` is a structured record that came before the handler was attached.
        """
        if self.config.level == "off" or self._running:
            return self
        if not active.take(self):
            if not self.gives_way:  # else it waits
                self._problems.say(f"nothing is recorded to {self.config.directory}: {active.what_runs()}")
            return self
        if self._has_ended:
            self._begin()
        self._running = True
        lifecycle_checks.attach(self)
        self._outbox.start()
        try:
            self._attach()
            if first is not None:
                self._tap.handle(first)
        except Exception as error:
            self.failed("attach", error)
        return self

    def stop(self) -> None:
        """Detach, write what is pending, and end the log."""
        self._stop("detach")

    def step(self) -> None:
        """Mark the end of a step."""
        if self._running:
            self.guarded("step", self._end_step, self._steps.on_user)

    def configure(self, config: TraceConfig) -> None:
        """Record as `config` says from the next call of each graph on, without compiling anything again."""
        with self._configuring:
            self.config = config
            try:
                self.saver.quota_bytes = config.save_quota_bytes
                self.judge.configure(config)
                self._outbox.lifetimes.configure(config)
                if self._hook is not None:
                    self._hook.configure(config)
                if config.level == "off":  # the next recorded call may be far away
                    self.flush()
            except Exception as error:
                self.failed("configure", error)

    def judging(self) -> AbstractContextManager[None]:
        """Return a context in which every call that begins is judged."""
        return self.judge.asked(lambda: self.configure(self.config))

    def __repr__(self) -> str:
        state = "recording" if self._running else "not recording"
        return f"<stepscope recorder: {state}, level {self.config.level}, log {self.path or 'not begun'}>"

    def _repr_html_(self) -> str:
        """Return the state and the findings for a notebook."""
        from stepscope.tracer.reading.findings import html_of_log

        has_findings = self.path is not None and not self._running
        return f"<p><code>{escape(repr(self))}</code></p>{html_of_log(self.path) if has_findings and self.path else ''}"

    def _recreate_cm(self) -> Recorder:
        """Create a recorder for each call of a decorated function, since calls may overlap."""
        return Recorder(self.config)

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def write(self, record: Record) -> None:
        self._log.write(record)

    recompute_mismatch = layout = same_tensors = compile_error = failed_node = replicated_parameters = write

    def saved(self, record: SavedTensor) -> None:
        with self._lock:
            if record.call in self.running:  # else another thread has ended the recording meanwhile
                self.write(record)

    def graph(self, record: Graph, source: str | None) -> None:
        """Record that a wrapper was loaded, with its `source` if torch does not log it."""
        self._log.graph(record, source)

    def about_graph(self, record: Record) -> None:
        self._log.about_graph(record)

    provenance = scheduled = tensors = tuned = autotuned = cpp_code = about_graph

    @property
    def asserts_lifetimes(self) -> bool:
        return self.config.lifetimes == "assert"

    def not_saved(self, why: str) -> None:
        if self.saver.is_new(why):
            self.skipped(Skipped("saved tensors", why))

    def enter(self, frame: object, phase: str | None) -> int:
        self._whole_calls.look()
        if not self.cuda_graphs.is_capturing():  # reading a gradient would break the capture
            self._optimizers.look(frame, phase)
        self._frozen.look()
        self._lines.enter(phase)
        return self._outbox.kept_tensors.at_step(self.profiler.at_step(self._steps.on_call(frame, phase)))

    def finish(self, call: GraphCall) -> None:
        with self._lock:
            if self.running.pop(call.number, None) is None:  # it was written when the recording ended
                return
            if self._outbox.add_call(call):
                self.flush()
            self._outbox.overhead.add_call(call)
        self._lines.leave(call)

    def values_now(self, call: GraphCall) -> None:
        with self._lock:
            if call.number in self.running:
                self._outbox.write_all(lambda: self._outbox.values.now(call))

    def failed(self, where: str, error: BaseException) -> None:
        """Count, write and report that a hook failed. Raises `error` if a signal handler of the program raised it."""
        self._problems.failed(where, error)
        with suppress(Exception):
            if failure_in(error) is not None:
                never_free(self)

    def flush(self, wait: bool = False) -> None:
        """Write the calls that have ended, and the values that have arrived from devices; with `wait`, all values."""
        with self._lock:
            self._log.check_file()
            self._outbox.flush(wait)
            if self._hook is not None:
                self.guarded("configurations of kernels", self._hook.tell_tuned)

    def guarded(self, where: str, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function`, so that the rest is done even after a device error."""
        try:
            function(*arguments)
        except Exception as error:
            self.failed(where, error)

    def _end_step(self, tell: Callable[..., None], *arguments: Any) -> None:
        tell(*arguments)
        started = time.perf_counter_ns()
        if self._outbox.is_step_due():
            self.flush()
            self._outbox.overhead.hook_ns += time.perf_counter_ns() - started

    def _attach(self) -> None:
        import torch

        atexit.register(self._stop, "exit")
        self._process_exit.attach()
        if reason := private_names.unsupported_version(torch.__version__):
            self.skipped(Skipped("everything", reason))
            return
        if (warning := private_names.untested_version(torch.__version__)) is not None:
            self._problems.say(warning)
        structured_log.add_handler(self._tap)
        self._optimizers.attach()
        self._attach_inductor()

    def _on_optimizer(self, optimizer: Any) -> None:
        self.guarded("optimizer", self._end_step, self._steps.on_optimizer, optimizer)

    def _attach_inductor(self) -> None:
        """Attach the hooks of Inductor once it is imported, so that they cost other programs nothing."""
        for part in self._parts:
            part.attach()
        if self._hook is not None or not compat.inductor_is_loaded():
            return
        with self._lock:
            if self._hook is None:
                self._hook = WrapperHook(self, self.config, self._graph_numbers, self._plain.dynamo)
                self._hook.attach()
                lifecycle_checks.stand_in()
                self.cuda_graphs.attach()
                self.guarded("ring", self.ring.guard_by, ticks)
                self._outbox.lifetimes.use_compiled()

    def _stop(self, reason: Any) -> None:
        if not active.release(self):
            return
        self._running, self._has_ended = False, True
        atexit.unregister(self._stop)
        self._process_exit.detach()
        structured_log.remove_handler(self._tap)
        lifecycle_checks.detach()
        for part in (self._optimizers, *self._parts):
            self.guarded("detach", part.detach)
        try:
            if self._hook is not None:
                self._hook.detach()
                self.cuda_graphs.detach()
            if self._log.has_begun or self._outbox.pending:
                self._end_log(reason)
        except Exception as error:
            self.failed("detach", error)
        self.marks.forget()
        self.ring.close(keep=not self._log.close() or self._device_error is not None)
        if reason != "exit":
            active.go_on()

    def give_way(self, other: TraceConfig) -> None:
        """End this log, because the program's code has begun another recording."""
        self.write(Skipped("a part of the run", f"the program recorded it to {other.directory}"))
        self.stop()

    def _end_log(self, reason: Literal["exit", "detach"]) -> None:
        self.guarded("device marks", self._ask_devices)
        with self._lock:
            self.guarded("unfinished calls", self._outbox.end_calls)
            self.guarded("judge", self.judge.flush)
        self.flush(wait=self._device_error is None)
        self.guarded("growth", self._outbox.end_lifetimes, self._steps.last)
        self._write_overhead()
        if reason == "exit" and (uncaught := self._process_exit.exception or uncaught_exception()) is not None:
            self.write(uncaught)
        self.write(End(reason, time.perf_counter_ns(), self._device_error))

    def _leave(self, reason: Reason) -> bool:
        """End the log before the process ends, without waiting for devices; return whether there is a log."""
        if (self._log.has_begun or self._outbox.pending) and self._lock.acquire(timeout=LONGEST_WAIT_S):
            try:
                self.guarded("unfinished calls", self._outbox.end_calls)
                self.guarded("sampled lines", self._lines.write)
                self.flush()
                self._write_overhead()
                self.write(End(reason, time.perf_counter_ns()))
                self.ring.close(keep=False)
            finally:
                self._lock.release()
        return self._log.has_begun

    def _ask_devices(self) -> None:
        self._device_error = self.marks.device_error()
        if self._device_error is not None:
            never_free(self)

    def after_fork(self) -> None:
        """Begin a log for a forked child, with the inherited graphs."""
        forget_parent_devices()
        self._log.after_fork()
        self.ring.abandon()
        self.ring, self.marks = self._new_ring()
        self._outbox = Outbox(self, self.config, self.ring, may_compile=self._hook is not None,
                              per_launch_ns=self._outbox.overhead.per_launch_ns)  # fmt: skip
        self.timer = self._outbox.timer
        self.marks.forget()
        self._steps = StepTracker(self._outbox.pending.add_mark, time.perf_counter_ns)
        self._lock, self._configuring = threading.RLock(), threading.RLock()
        self.running = {call.number: call for call in recorded_calls_of_this_thread()}
        if self._hook is not None:
            self._hook.after_fork()
            self.guarded("ring", self.ring.guard_by, ticks)
        self.saver.after_fork(tensors_folder(self._log.writer.target))
        self.judge.after_fork()
        self.called = CallSites(self.write).look
        for part in (self._optimizers, self._frozen, self._lines, self.red_zones):
            part.after_fork()
        self._problems.forget()

    def _on_structured(self, data: bytes, metadata: dict[str, Any], payload: str | None) -> None:
        self._log.write_torchs(data, metadata)
        self._attach_inductor()
        artifact = metadata.get("artifact")
        is_traces = isinstance(artifact, dict) and artifact.get("name") == provenance.STACK_TRACES
        if is_traces and payload and self._hook is not None:
            self._hook.on_stack_traces(orjson.loads(payload))

    def _write_overhead(self) -> None:
        self.write(self._outbox.overhead.to_record(self._log.writer.bytes_written, self._problems.count))

    def _on_log_failed(self, error: OSError) -> None:
        self.ring.log_failed(error.errno or errno.EIO)
        self._problems.say(f"cannot write to {self.config.directory}: {reason_of(error)}; recording has stopped")
