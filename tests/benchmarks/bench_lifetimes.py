"""What following one storage costs, in calls of a thousand to a hundred thousand of them.

python -m tests.benchmarks.bench_lifetimes

Each call allocates tensors one by one, half of which die before it ends; the same allocations without following are
subtracted. A cost that grows more than linearly would show as a rising figure.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count

import torch

from stepscope.tracer.runtime.calls import GraphCall, running_call
from stepscope.tracer.runtime.lifetimes import trackers as lifetimes_core
from stepscope.tracer.runtime.lifetimes.call_layouts import CallLayouts
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.runtime.lifetimes.trackers import CompiledTracker
from stepscope.tracer.wrapper.parsed import PointStorages

SIZES = (1_000, 10_000, 100_000)
TURNS = 7
PLACE = PointStorages("allocated", ("buf0",), ("cpu",))


class Hooks:
    """What the trackers need of a graph's hooks."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def see_storages(self, call: GraphCall, place: int, values: Sequence[object]) -> None:
        self.tracker.see(call, place, PLACE, values)


def call_of(storages: int, tracker: Tracker, layouts: CallLayouts, numbers: count[int]) -> float:
    """Seconds of one call that is followed."""
    start = time.perf_counter()
    call = GraphCall(0, 0, None, None)
    call.step = next(numbers)
    call.life = tracker.life(call)
    see = tracker.observer(Hooks(tracker), [PLACE])
    kept = []
    for number in range(storages):
        tensor = torch.empty(4)
        see(call, 0, (tensor,))
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
    trackers = {
        "compiled": CompiledTracker(lifetimes_core.load(), running_call, time.perf_counter_ns),
        "Python": Tracker(running_call, time.perf_counter_ns),
    }
    for name, tracker in trackers.items():
        report(name, tracker)
    return 0


def report(name: str, tracker: Tracker) -> None:
    layouts, numbers = CallLayouts(0, [PLACE]), count()
    first = 0.0
    for storages in SIZES:
        bare = median(lambda n=storages: plain(n))  # type: ignore[misc]
        followed = median(lambda n=storages: call_of(n, tracker, layouts, numbers))  # type: ignore[misc]
        each = (followed - bare) / storages * 1e6
        first = first or each
        print(f"{name:>8}: {storages:>7,} storages a call: {each:6.3f} us each, {each / first:5.2f} of the first line")


if __name__ == "__main__":
    sys.exit(main())
