"""Tells for how long threads have waited for a core of the machine, as they do while other programs use all of them."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from ctypes import PyDLL
from time import perf_counter_ns

_OWN = "/proc/thread-self/schedstat"
_OTHER = "/proc/self/task/{}/schedstat"


class CoreWaits:
    """Reads the waits of one thread of this process: the calling one, or that with a native id. To read them does not
    give Python's lock away."""

    def __init__(self, thread: int | None = None) -> None:
        self._text = ctypes.create_string_buffer(96)
        self._libc = PyDLL(None)
        self._file: int | None = None
        with suppress(OSError):  # the thread has ended, or the system is another one, or does not count this
            self._file = os.open(_OWN if thread is None else _OTHER.format(thread), os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def ns(self) -> int:
        """Return the time that the thread has waited in all, up to when it last got a core; 0 if this is unknown."""
        if self._file is None or self._libc.pread(self._file, self._text, len(self._text) - 1, ctypes.c_long(0)) <= 0:
            return 0
        return int(self._text.value.split()[1])


class DelayedShare:
    """Measures which part of some time another thread waits for a core."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._waits: CoreWaits | None = None
        self._since_ns = self._before_ns = 0

    def close(self) -> None:
        if self._waits is not None:
            self._waits.close()

    def begin(self, thread: int) -> None:
        """Remember the time, and the waits of the thread with this native id."""
        if self._waits is None or thread != self._thread:
            self.close()
            self._thread, self._waits = thread, CoreWaits(thread)
        self._since_ns, self._before_ns = perf_counter_ns(), self._waits.ns()

    def percent(self) -> int:
        """Return for how many percent of the time since `begin` the thread has waited for a core. A wait counts when
        it ends, so that this may be more than 100, while earlier answers were too small."""
        waited_ns = self._waits.ns() - self._before_ns if self._waits is not None else 0
        return max(0, round(100 * waited_ns / max(1, perf_counter_ns() - self._since_ns)))
