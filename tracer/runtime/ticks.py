"""The statements before and after each launch as one call, compiled: ticks.cpp.

Between launches hardly anything of a statement is left in the processor's caches: one call takes half as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from stepscope.tracer.runtime import compiled

_CLOCK = "clock_gettime(CLOCK_MONOTONIC)"


class Tick(Protocol):
    """Writes the time into a cell of the launch ring and into `rows`, and returns it (ns)."""

    rows: list[int]

    def __call__(self, cell: int, site: int = ..., /) -> int:
        """With the site of a launch that is about to begin; without, one has returned."""


TickType = Callable[[memoryview], Tick]
"""Makes one for cells, a writable view of 8-byte integers."""


def tick_type() -> TickType | None:
    """None: it cannot be compiled here."""
    if time.get_clock_info("perf_counter").implementation != _CLOCK:
        return None
    try:
        made: TickType = compiled.load("stepscope_ticks", "ticks.cpp").Tick
        return made
    except RuntimeError:
        return None
