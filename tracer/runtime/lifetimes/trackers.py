"""What follows storages in a recording: one tracker at a time, and those before it, which tell of their deaths."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.runtime.calls import GraphCall, running_call
from stepscope.tracer.runtime.lifetimes import core as lifetimes_core
from stepscope.tracer.runtime.lifetimes.core import CompiledTracker
from stepscope.tracer.runtime.lifetimes.lifecycle_checks import take_repeats
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.schema.records import Lifetimes, MemoryStepMismatch


class LifetimeTrackers:
    """The trackers of a recording. The caller of `batches` holds a lock."""

    def __init__(self, config: TraceConfig, may_compile: bool = False) -> None:
        self._trackers: list[Tracker] = []
        self._may_compile = may_compile
        self.configure(config)

    @property
    def tracker(self) -> Tracker | None:
        """What follows the storages of calls that begin now."""
        return self._trackers[-1] if self._trackers else None

    def configure(self, config: TraceConfig) -> None:
        """Follow storages, or no more: what has followed them tells of their deaths all the same."""
        self._every = 1 if config.lifetimes == "assert" else config.lifetimes_every
        is_on = config.lifetimes != "off"
        if is_on and not self._trackers:
            self._trackers.append(Tracker(running_call, time.perf_counter_ns))
            self._compile()
        if self.tracker is not None:
            self.tracker.is_on = is_on
            self.tracker.follow_every(self._every)

    def use_compiled(self) -> None:
        """Inductor is there, which builds the compiled one; no storage that is alive goes from one to the other."""
        self._may_compile = True
        self._compile()

    def batches(self, calls: Sequence[GraphCall]) -> Iterator[Lifetimes | MemoryStepMismatch]:
        """What `calls` followed, what has died outside of calls and what checks found again since the last time."""
        for tracker in reversed(self._trackers):
            if (found := tracker.batch(calls)) is not None:
                yield found
            calls = ()
        yield from take_repeats()

    def _compile(self) -> None:
        now = self.tracker
        if not self._may_compile or now is None or isinstance(now, CompiledTracker) or now.storages():
            return
        with suppress(RuntimeError):
            made = CompiledTracker(lifetimes_core.load(), running_call, time.perf_counter_ns, self._every)
            made.is_on = now.is_on
            self._trackers.append(made)
