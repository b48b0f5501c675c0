"""Runs PyTorch's profiler in chosen steps, and records what it sees on the clock of the launches.

Only the public interface of `torch.profiler` is used. Its clock is aligned by ranges of its own whose begin and end
are read on both clocks. The operators of all threads and the work of devices are recorded."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any, Protocol

from stepscope.tracer.runtime.device.cuda_graphs import CudaGraphCalls
from stepscope.tracer.runtime.profiled_work import device_events, device_work
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.profiles import ProfiledOperator

MOST = 50_000
"""Maximum number of operators that are recorded."""
MOST_WORK = 500_000
"""Maximum number of pieces of work of devices that are recorded."""
MOST_DEPTH = 3
_CLOCK, _MARKS = "stepscope clock", 5
_WHAT = "operators of profiled steps"
_WORK = "work of devices in profiled steps"


class ProfileSink(Protocol):
    """The part of the recorder that is used here."""

    cuda_graphs: CudaGraphCalls

    def write(self, record: Any) -> None: ...
    def skipped(self, record: Skipped) -> None: ...
    def guarded(self, where: str, function: Callable[..., None], *arguments: Any) -> None: ...


class StepProfiler:
    """Profiles the steps from the first to the one before the last. A failure ends it and never reaches the program,
    and a profiler that the program starts takes over, since PyTorch runs one at a time."""

    def __init__(self, sink: ProfileSink, steps: tuple[int, int | None] | None, is_on: Callable[[], bool]) -> None:
        self._sink, self._steps, self._is_on = sink, steps, is_on
        self._profile: Any = None
        self._restore: list[Callable[[], None]] = []
        self._thread = 0
        self._began_ns = self._mark = self._marked_ns = 0

    @property
    def is_running(self) -> bool:
        return self._profile is not None

    def attach(self) -> None:
        """Do nothing: the profiler starts with its first step."""

    def detach(self) -> None:
        """End a profile that runs, and start no other."""
        self._steps = None
        if self._profile is not None:
            self._sink.guarded("profile", self._finish)

    def at_step(self, step: int) -> int:
        """Start or end the profiler at a graph call of `step`, as the steps need it; return `step`."""
        if self._steps is not None and (self._profile is None or threading.get_native_id() == self._thread):
            self._look(step, *self._steps)
        return step

    def _look(self, step: int, first: int, stop: int | None) -> None:
        if stop is not None and step >= stop:
            self._steps = None
            if self._profile is not None:
                self._sink.guarded("profile", self._finish)
        elif step >= first and self._profile is None:
            self._sink.guarded("profile", self._start)

    def _start(self) -> None:
        import torch
        from torch.autograd import profiler
        from torch.profiler import ProfilerActivity, profile, record_function

        steps, self._steps = self._steps, None  # a profiler that cannot start is not tried again
        if self._is_on():
            self._sink.skipped(Skipped(_WHAT, "the program runs PyTorch's profiler itself"))
            return
        on_device = [ProfilerActivity.CUDA] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        # Without `acc_events`, torch 2.11 warns the program that a later cycle would lose events.
        found = profile(activities=[ProfilerActivity.CPU, *on_device], acc_events=True)
        found.start()
        self._began_ns, self._sink.cuda_graphs.profiled = perf_counter_ns(), []
        widths = []
        for _ in range(_MARKS):  # the first range takes long, and another thread may run during one
            before = perf_counter_ns()
            with record_function(_CLOCK):
                inside = perf_counter_ns()
            widths.append((inside - before, before))
        width, before = min(widths)
        self._mark, self._marked_ns = widths.index((width, before)), before + width // 2
        self._profile, self._thread, self._steps = found, threading.get_native_id(), steps
        ways = (profile, "start"), (profiler.profile, "__enter__")
        self._restore = [_preceded(owner, name, self.detach) for owner, name in ways]

    def _finish(self) -> None:
        found, self._profile = self._profile, None
        ended_ns, replays = perf_counter_ns(), self._sink.cuda_graphs.profiled or []
        self._sink.cuda_graphs.profiled = None
        while self._restore:
            self._restore.pop()()
        if threading.get_native_id() != self._thread:
            self._sink.skipped(Skipped(_WHAT, "the recording was ended by another thread than that of these steps"))
            return
        found.stop()
        events = list(found.events())
        marks = sorted(float(event.time_range.start) for event in events if event.name == _CLOCK)
        if len(marks) != _MARKS:
            self._sink.skipped(Skipped(_WHAT, "the profiler did not record the ranges that align its clock"))
            return

        def clock(at_us: float) -> int:
            return self._marked_ns + round((at_us - marks[self._mark]) * 1000)

        work = device_events(events)
        for record in device_work(events, work[:MOST_WORK], replays, clock, self._began_ns, ended_ns):
            self._sink.write(record)
        if len(work) > MOST_WORK:
            self._sink.skipped(Skipped(_WORK, f"{len(work) - MOST_WORK:,} kernels and copies were too many"))
        self._record_operators(events, clock)

    def _record_operators(self, events: Iterable[Any], clock: Callable[[float], int]) -> None:
        operators = [(event, depth) for event in events if (depth := _depth(event)) is not None and depth <= MOST_DEPTH]
        operators.sort(key=lambda one: float(one[0].time_range.start))
        for event, depth in operators[:MOST]:
            duration_ns = round(event.time_range.elapsed_us() * 1000)
            thread, start_ns = event.device_resource_id, clock(event.time_range.start)
            self._sink.write(ProfiledOperator(thread, start_ns, duration_ns, event.name, depth))
        if len(operators) > MOST:
            self._sink.skipped(Skipped(_WHAT, f"{len(operators) - MOST:,} were too many"))


def _preceded(owner: Any, name: str, before: Callable[[], None]) -> Callable[[], None]:
    """Let a method call `before` first; return a function that restores it, if nothing else has replaced it."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def called(*arguments: Any, **named: Any) -> Any:
        before()
        return original(*arguments, **named)

    def restore() -> None:
        if getattr(owner, name) is called:
            setattr(owner, name, original)

    setattr(owner, name, called)
    return restore


def _depth(event: Any) -> int | None:
    """Return the number of operators around an operator; None for other ranges, such as those of Dynamo."""
    if not _is_operator(event):
        return None
    depth, parent = 0, event.cpu_parent
    while parent is not None:
        depth += _is_operator(parent)
        parent = parent.cpu_parent
    return depth


def _is_operator(event: Any) -> bool:
    """Return whether the name is that of an operator (``aten::mm``) and not of a node of autograd's engine."""
    space, colons, name = event.name.partition("::")
    return bool(colons) and space.isidentifier() and name.isidentifier() and space not in ("autograd", "torch")
