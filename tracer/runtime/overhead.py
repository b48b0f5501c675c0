"""Measures what recording costs the program."""

from __future__ import annotations

import time

from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.schema.process_ends import Overhead


class OverheadMeter:
    """Adds up the time that one recording costs the program."""

    def __init__(self) -> None:
        self.hook_ns = self.launches = 0
        self._per_launch_ns = 0.0
        self._stats_ns: int | None = None
        self._started_ns = time.perf_counter_ns()

    def start(self) -> None:
        """Begin the time of the recording, and measure the cost of one launch."""
        self._started_ns = time.perf_counter_ns()
        self._per_launch_ns = cost_of_a_launch()

    def forget(self) -> None:
        """Start again in a forked child, with the parent's cost of one launch."""
        self.hook_ns = self.launches = 0
        self._stats_ns = None
        self._started_ns = time.perf_counter_ns()

    def add_call(self, call: GraphCall) -> None:
        """Add the cost of a call that has ended, including the time since its end."""
        if call.stats_ns:
            self._stats_ns = (self._stats_ns or 0) + call.stats_ns
        self.hook_ns += call.cost_ns + call.stats_ns + time.perf_counter_ns() - call.end_ns

    def to_record(self, log_bytes: int, failures: int) -> Overhead:
        hook_ns = int(self.hook_ns + self.launches * self._per_launch_ns)
        wall_ns = time.perf_counter_ns() - self._started_ns
        return Overhead(hook_ns, wall_ns, log_bytes, self.launches, failures, self._stats_ns)


def cost_of_a_launch() -> float:
    """Return the measured time of the statements inserted for one launch, in ns."""
    rows: list[int] = []
    now = time.perf_counter_ns
    look = bytearray(1)
    rounds = 1000
    started = now()
    for _ in range(rounds):
        if look[0]:
            continue
        rows.append(0)
        rows.append(now())
        rows.append(now())
    return (now() - started) / rounds
