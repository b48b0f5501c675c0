"""The statements before and after each launch as one call, compiled: ticks.cpp.

Between launches hardly anything of a statement is left in the processor's caches: one call takes half as long.
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
        address = _address(mapped)
        if library.guard(address, len(mapped)):
            weakref.finalize(mapped, library.release, address).atexit = False


def stay_in_front() -> None:
    """What the program has made of SIGBUS since `guard`, as `faulthandler.enable` does, concerns only what is not
    guarded. Does nothing where nothing can be compiled."""
    library = _library()
    if library is not None:
        library.stay_in_front()


def leave_word(words: memoryview, number: int, at_ns: int) -> None:
    """A signal that ends the process by default, while the program has no handler for it, leaves its number and the
    time in these two of `words`, until `leave_no_word`. Does nothing where nothing can be compiled."""
    library = _library()
    if library is not None:
        address = _address(words)
        library.leave_word(address + number * words.itemsize, address + at_ns * words.itemsize)


def leave_no_word(words: memoryview, number: int) -> None:
    """Signals do again what they do without `leave_word`, unless another memory is asked to hold theirs meanwhile."""
    library = _library()
    if library is not None:
        library.leave_no_word(_address(words) + number * words.itemsize)


def _address(memory: memoryview | mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _library() -> Any:
    try:
        return compiled.load("stepscope_ticks", Path(__file__).with_name("ticks.cpp"))
    except RuntimeError:
        return None
