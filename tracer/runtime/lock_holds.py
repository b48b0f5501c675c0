"""Tells for how long a thread kept Python's lock from another one that wants to look where it is.

A thread that computes in Python gives the lock away where it calls, for instance, an operator of PyTorch, or wherever
it is once another thread has waited for the switch interval. In the first case it is seen at the call, however long
it computed before.
"""

from __future__ import annotations

import sys
import time
from time import perf_counter_ns
from typing import Self

from stepscope.tracer.runtime.core_waits import CoreWaits

LEAST_HELD_NS = 400_000
"""A thread needs up to this time to wake up and to get the lock, even if the other one gives it away all the time."""
ASKED_NS = 1_000_000
"""If not more than this has passed since the end of the switch interval, the lock was given away on request."""


class LockWait:
    """Measures the waits of the thread that creates this. Nothing here gives the lock away."""

    def __init__(self) -> None:
        self._clock: int | None = None
        self._wanted_ns = self._computed_ns = self._delayed_ns = 0
        self._delays = CoreWaits()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._delays.close()

    def begin(self, clock: int | None, wait_s: float) -> None:
        """Remember that this thread wants to run after a time, and the clock of the computing of another thread."""
        self._clock = clock
        self._computed_ns, self._delayed_ns = computed_ns(clock), self._delays.ns()
        self._wanted_ns = perf_counter_ns() + round(wait_s * 1e9)

    def end(self) -> int:
        """Return for how long since then the other thread held the lock, as `held_ns` does."""
        late_ns = perf_counter_ns() - self._wanted_ns - (self._delays.ns() - self._delayed_ns)
        return held_ns(late_ns, computed_ns(self._clock) - self._computed_ns)


def computed_ns(clock: int | None) -> int:
    """Return for how long a thread has computed; 0 if it has ended, or if this is unknown."""
    try:
        return time.clock_gettime_ns(clock) if clock is not None else 0
    except OSError:
        return 0


def held_ns(late_ns: int, computing_ns: int) -> int:
    """Return for how long a thread held the lock until it gave it away of its own accord, if another one ran late and
    the thread computed for such a time; 0 if the thread is seen where it was before, too."""
    past_ns = late_ns - round(sys.getswitchinterval() * 1e9)
    is_held = late_ns >= LEAST_HELD_NS and 2 * computing_ns >= late_ns
    return late_ns if is_held and not 0 <= past_ns < ASKED_NS else 0
