"""Measures what recording costs the program."""

from __future__ import annotations

import time

from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.schema.records import Overhead


class OverheadMeter:
    """Adds up the time that one recording takes from the program."""

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
        """Start anew in a forked child, whose launches cost what they cost its parent."""
        self.hook_ns = self.launches = 0
        self._stats_ns = None
        self._started_ns = time.perf_counter_ns()

    def add_call(self, call: GraphCall) -> None:
        """Add what a call that has ended cost, up to now."""
        if call.stats_ns:
            self._stats_ns = (self._stats_ns or 0) + call.stats_ns
        self.hook_ns += call.cost_ns + call.stats_ns + time.perf_counter_ns() - call.end_ns

    def to_record(self, log_bytes: int, failures: int) -> Overhead:
        hook_ns = int(self.hook_ns + self.launches * self._per_launch_ns)
        wall_ns = time.perf_counter_ns() - self._started_ns
        return Overhead(hook_ns, wall_ns, log_bytes, self.launches, failures, self._stats_ns)


def cost_of_a_launch() -> float:
    """Measure the nanoseconds that the inserted statements of one launch take here."""
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
