"""Loads the compiled function that replaces the statements before and after each launch, and other C++ (ticks.cpp).

Between launches the processor's caches lose the data of the statements, so that one call takes half as long.
"""

from __future__ import annotations

import ctypes
import mmap
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from stepscope.tracer.runtime import compiled

_CLOCK = "clock_gettime(CLOCK_MONOTONIC)"


class Tick(Protocol):
    """Writes the time into a cell of the launch ring and into `rows`, and returns it (ns)."""

    rows: list[int]

    def __call__(self, cell: int, site: int = ..., /) -> int:
        """Record the begin of a launch if its site is given, else that a launch has returned."""


TickType = Callable[[memoryview], Tick]
"""Constructor of a Tick for the given cells, a writable view of 8-byte integers."""


def tick_type() -> TickType | None:
    """Return the compiled type, or None if it cannot be compiled or Python uses another clock."""
    if time.get_clock_info("perf_counter").implementation != _CLOCK or (library := _library()) is None:
        return None
    made: TickType = library.Tick
    return made


def guard(mapped: mmap.mmap) -> None:
    """Prevent SIGBUS from ending the process if the file behind `mapped` is truncated and a lost page is accessed.

    Does nothing if the C++ code cannot be compiled; this holds for the functions below as well.
    """
    library = _library()
    if library is not None:
        address = _address(mapped)
        if library.guard(address, len(mapped)):
            weakref.finalize(mapped, library.release, address).atexit = False


def stay_in_front() -> None:
    """Install the handler of `guard` again, before a SIGBUS handler that was set meanwhile, as by `faulthandler`."""
    library = _library()
    if library is not None:
        library.stay_in_front()


def record_signals(words: memoryview, number: int, at_ns: int) -> None:
    """Make signals that end the process by default write their number and time to `words`, until
    `stop_recording_signals` is called.

    `number` and `at_ns` are indices into `words`. Signals that the program handles are not affected.
    """
    library = _library()
    if library is not None:
        address = _address(words)
        library.record_signals(address + number * words.itemsize, address + at_ns * words.itemsize)


def stop_recording_signals(words: memoryview, number: int) -> None:
    """Undo `record_signals`, unless it was called for other memory meanwhile."""
    library = _library()
    if library is not None:
        library.stop_recording_signals(_address(words) + number * words.itemsize)


def _address(memory: memoryview | mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _library() -> Any:
    try:
        return compiled.load("stepscope_ticks", Path(__file__).with_name("ticks.cpp"))
    except RuntimeError:
        return None
