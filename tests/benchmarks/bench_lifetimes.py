"""What following one storage costs, in calls of a thousand to a hundred thousand of them.

python -m tests.benchmarks.bench_lifetimes

Each call allocates tensors one by one, half of which die before it ends; the same allocations without following are
subtracted. A cost that grows more than linearly would show as a rising figure.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from itertools import count

import torch

from tracer.runtime.launches import Call, running_call
from tracer.runtime.lifetimes import Layouts, Life, Place, Tracker

SIZES = (1_000, 10_000, 100_000)
TURNS = 7
PLACE = Place("allocated", ("buf0",), ("cpu",))


def call_of(storages: int, tracker: Tracker, layouts: Layouts, numbers: count[int]) -> float:
    """Seconds of one call that is followed."""
    start = time.perf_counter()
    call = Call(0, 0, None, None)
    call.step = next(numbers)
    call.life = Life(call)
    kept = []
    for number in range(storages):
        tensor = torch.empty(4)
        tracker.meet(call, 0, PLACE, (tensor,))
        if number % 2:
            kept.append(tensor)
    layouts.of(call, tracker, lambda record: None)
    tracker.batch([call])
    kept.clear()
    return time.perf_counter() - start


def plain(storages: int) -> float:
    start = time.perf_counter()
    kept = []
    for number in range(storages):
        tensor = torch.empty(4)
        if number % 2:
            kept.append(tensor)
    kept.clear()
    return time.perf_counter() - start


def median(run: Callable[[], float]) -> float:
    return statistics.median(run() for _ in range(TURNS))


def main() -> int:
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}; medians of {TURNS} calls")
    tracker, layouts, numbers = Tracker(running_call, time.perf_counter_ns), Layouts(0, [PLACE]), count()
    first = 0.0
    for storages in SIZES:
        bare = median(lambda n=storages: plain(n))  # type: ignore[misc]
        followed = median(lambda n=storages: call_of(n, tracker, layouts, numbers))  # type: ignore[misc]
        each = (followed - bare) / storages * 1e6
        first = first or each
        print(f"{storages:>8,} storages a call: {each:6.3f} us each, {each / first:5.2f} of the first line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
