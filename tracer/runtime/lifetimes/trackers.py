"""Manages the trackers of a recording: the current one, and earlier ones, which still report deaths."""

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
from stepscope.tracer.schema.memory import Lifetimes, MemoryStepMismatch


class LifetimeTrackers:
    """The trackers of a recording. The caller of `batches` must have acquired a lock."""

    def __init__(self, config: TraceConfig, may_compile: bool = False) -> None:
        self._trackers: list[Tracker] = []
        self._may_compile = may_compile
        self.configure(config)

    @property
    def tracker(self) -> Tracker | None:
        """Tracker that follows the storages of calls that begin now; None if none does."""
        return self._trackers[-1] if self._trackers else None

    def configure(self, config: TraceConfig) -> None:
        """Apply the configuration; a tracker that is switched off still reports deaths."""
        self._every = 1 if config.lifetimes == "assert" else config.lifetimes_every
        is_on = config.lifetimes != "off"
        if is_on and not self._trackers:
            self._trackers.append(Tracker(running_call, time.perf_counter_ns))
            self._compile()
        if self.tracker is not None:
            self.tracker.is_on = is_on
            self.tracker.follow_every(self._every)

    def use_compiled(self) -> None:
        """Switch to the compiled tracker, now that Inductor is imported to build it, unless any storage is followed."""
        self._may_compile = True
        self._compile()

    def batches(self, calls: Sequence[GraphCall]) -> Iterator[Lifetimes | MemoryStepMismatch]:
        """Yield the layouts of `calls`, and since the last time the deaths outside of calls and repeated mismatches."""
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
