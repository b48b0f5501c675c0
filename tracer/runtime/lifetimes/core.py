"""A tracker whose hot paths are in C++ (core.cpp), compiled with Inductor's toolchain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepscope.tracer.runtime import compiled
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.lifetimes.life import FollowedCall, LiveStorage
from stepscope.tracer.runtime.lifetimes.tracker import RECENT_STEPS, StorageHooks, Tracker
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
