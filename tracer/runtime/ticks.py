"""The statements before and after each launch as one call, compiled: ticks.cpp.

Between launches hardly anything of a statement is left in the processor's caches: one call takes half as long.
"""

from __future__ import annotations

import ctypes
import mmap
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

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
    if time.get_clock_info("perf_counter").implementation != _CLOCK or (library := _library()) is None:
        return None
    made: TickType = library.Tick
    return made


def guard(mapped: mmap.mmap) -> None:
    """What cuts the file behind `mapped` shall not end the process: without this, who touches a page that is gone dies
    of SIGBUS. Does nothing where nothing can be compiled."""
    library = _library()
    if library is not None:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        if library.guard(address, len(mapped)):
            weakref.finalize(mapped, library.release, address).atexit = False


def _library() -> Any:
    try:
        return compiled.load("stepscope_ticks", "ticks.cpp")
    except RuntimeError:
        return None
