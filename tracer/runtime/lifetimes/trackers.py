"""Manages the trackers of a recording, and provides one whose hot paths are in C++ (core.cpp)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.runtime import compiled
from stepscope.tracer.runtime.calls import GraphCall, running_call
from stepscope.tracer.runtime.lifetimes.garbage import GarbageCollections
from stepscope.tracer.runtime.lifetimes.growth import growth_of
from stepscope.tracer.runtime.lifetimes.step_reports import reports
from stepscope.tracer.runtime.lifetimes.tracker import RECENT_STEPS, FollowedCall, LiveStorage, StorageHooks, Tracker
from stepscope.tracer.schema.memory import Collections, Growth, Lifetimes, MemoryStepMismatch
from stepscope.tracer.wrapper.parsed import PointStorages

SOURCE = Path(__file__).with_name("core.cpp")


class CompiledTracker(Tracker):
    """A tracker that takes some tenths of a microsecond per storage, so that every step can be followed."""

    usual = 1

    def __init__(
        self,
        module: Any,
        running: Callable[[], FollowedCall | None],
        clock: Callable[[], int],
        every: int | None = None,
    ) -> None:
        super().__init__(running, clock, every)
        self._module, self.life = module, module.Life
        self._core = module.Core(running, clock)

    def storages(self) -> list[LiveStorage]:
        return [LiveStorage(*fields) for fields in self._core.storages()]

    def _died_outside(self) -> tuple[list[int], list[int], list[int]]:
        columns: tuple[list[int], list[int], list[int]] = self._core.outside()
        return columns

    def observer(self, hooks: StorageHooks, points: Sequence[PointStorages]) -> Any:
        kinds = "".join(point.kind[0] for point in points)
        return self._module.Observer(self._core, hooks, kinds, tuple(point.names for point in points))


def load() -> Any:
    """Return the compiled module. Raises RuntimeError at each call if it cannot be built."""
    return compiled.load("stepscope_lifetimes", SOURCE, lambda made: made.set_up(GraphCall, RECENT_STEPS))


class LifetimeTrackers:
    """The current tracker of a recording, and earlier ones, which still report deaths.

    The caller of `batches` must have acquired a lock.
    """

    def __init__(self, config: TraceConfig, may_compile: bool = False) -> None:
        self._trackers: list[Tracker] = []
        self._may_compile = may_compile
        self._garbage = GarbageCollections(time.perf_counter_ns)
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

    def end(self, last_step: int) -> list[Growth]:
        """Return the record of growth, as `growth_of` does, and stop noting the program's garbage collections."""
        self._garbage.detach()
        return growth_of(self.tracker, last_step)

    def batches(self, calls: Sequence[GraphCall]) -> Iterator[Lifetimes | Collections | MemoryStepMismatch]:
        """Yield the layouts of `calls`, and since the last time the deaths outside of calls, the garbage collections in
        which storages died, and repeated mismatches."""
        dead_ns: list[int] = []
        last_step = max((call.step for call in calls), default=0)
        for tracker in reversed(self._trackers):
            if (found := tracker.batch(calls)) is not None:
                self._garbage.attach()
                dead_ns += found.dead_ns
                yield found
            calls = ()
        live = self.tracker.storages if self.tracker is not None else list
        if (collections := self._garbage.record(dead_ns, live, last_step)) is not None:
            yield collections
        yield from reports.take_repeats()

    def _compile(self) -> None:
        now = self.tracker
        if not self._may_compile or now is None or isinstance(now, CompiledTracker) or now.storages():
            return
        with suppress(RuntimeError):
            made = CompiledTracker(load(), running_call, time.perf_counter_ns, self._every)
            made.is_on = now.is_on
            self._trackers.append(made)
