"""Runs PyTorch's profiler in chosen steps, and records the operators that it sees on the clock of the launches.

Only the public interface of `torch.profiler` is used. Its clock is aligned by a range of its own whose begin and end
are read on both clocks. Operators of the thread that runs the steps are recorded; what a device does is not."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any, Protocol

from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.profiles import ProfiledOperator

MOST = 50_000
"""Maximum number of operators that are recorded."""
MOST_DEPTH = 3
_CLOCK = "stepscope clock"
_WHAT = "operators of profiled steps"


class ProfileSink(Protocol):
    """The part of the recorder that is used here."""

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
        self._marked_ns = 0

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
        from torch.autograd import profiler
        from torch.profiler import ProfilerActivity, profile, record_function

        steps, self._steps = self._steps, None  # a profiler that cannot start is not tried again
        if self._is_on():
            self._sink.skipped(Skipped(_WHAT, "the program runs PyTorch's profiler itself"))
            return
        found = profile(activities=[ProfilerActivity.CPU])
        found.start()
        for _ in range(2):  # the first range takes long
            before = perf_counter_ns()
            with record_function(_CLOCK):
                inside = perf_counter_ns()
            self._marked_ns = (before + inside) // 2
        self._profile, self._thread, self._steps = found, threading.get_native_id(), steps
        ways = (profile, "start"), (profiler.profile, "__enter__")
        self._restore = [_preceded(owner, name, self.detach) for owner, name in ways]

    def _finish(self) -> None:
        found, self._profile = self._profile, None
        while self._restore:
            self._restore.pop()()
        if threading.get_native_id() != self._thread:
            self._sink.skipped(Skipped(_WHAT, "the recording was ended by another thread than that of these steps"))
            return
        found.stop()
        self._record(found.events())

    def _record(self, events: Iterable[Any]) -> None:
        known = list(events)
        marks = [event for event in known if event.name == _CLOCK]
        if not marks:
            self._sink.skipped(Skipped(_WHAT, "the profiler did not record the range that aligns its clock"))
            return
        mark = marks[-1]
        operators = [(event, depth) for event in known if (depth := _depth(event)) is not None and depth <= MOST_DEPTH]
        mine = [(event, depth) for event, depth in operators if event.thread == mark.thread]
        mine.sort(key=lambda one: float(one[0].time_range.start))
        for event, depth in mine[:MOST]:
            start_ns = self._marked_ns + round((event.time_range.start - mark.time_range.start) * 1000)
            duration_ns = round(event.time_range.elapsed_us() * 1000)
            self._sink.write(ProfiledOperator(self._thread, start_ns, duration_ns, event.name, depth))
        if len(mine) > MOST:
            self._sink.skipped(Skipped(_WHAT, f"{len(mine) - MOST:,} were too many"))
        if len(operators) > len(mine):
            why = f"{len(operators) - len(mine):,} ran in other threads, whose numbers the profiler does not tell"
            self._sink.skipped(Skipped(_WHAT, why))


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
