"""What the launch ring costs: ``python -m tests.benchmarks.bench_ring``.

First what one launch pays: the statements that the ring adds to it, timed alone, and a graph call's begin and end.
Then a transformer's training step (on a CUDA device the one of `bench_gpu`, else that of `bench_launches`), recorded
with the ring, with the ring but without the device's marks, and without it in turns: the code of the wrappers is
exchanged, the rest is one process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import tracer
from tests.benchmarks import bench_gpu, bench_launches
from tracer.inductor import code_swap
from tracer.launch_ring import LaunchRing, Shape
from tracer.recorder import Recorder
from tracer.runtime.launches import Call

ROUNDS, REPEATS = 1_000, 300
TURNS, WARM_TURNS, STEPS = 500, 6, 5
NEVER = 2**40
"""Of steps between two whose storages are followed."""


def ring_in(folder: str) -> LaunchRing:
    def say(why: str) -> None:
        raise RuntimeError(why)

    return LaunchRing(lambda: Path(folder, "bench.log"), say)


def bare_ns() -> tuple[float, float]:
    """(nanoseconds a launch, nanoseconds a graph call) that the ring adds."""
    shape = Shape(0, 300)
    with tempfile.TemporaryDirectory() as folder:
        ring = ring_in(folder)
        call = Call(0, 0, None, None)
        ring.begin(call, shape)
        cells, now = call.cells, time.perf_counter_ns()
        launches, nothing, calls = [], [], []
        for _ in range(REPEATS):
            start = time.perf_counter_ns()
            for _ in range(ROUNDS):
                cells[40] = now
                cells[41] = now
            launches.append(time.perf_counter_ns() - start)
            start = time.perf_counter_ns()
            for _ in range(ROUNDS):
                pass
            nothing.append(time.perf_counter_ns() - start)
            start = time.perf_counter_ns()
            for _ in range(ROUNDS):
                ring.begin(call, shape)
                ring.started(call, shape)
                ring.end(call, shape)
                ring.give_back(call.block)
            calls.append(time.perf_counter_ns() - start)
        ring.close(keep=False)
    return (min(launches) - min(nothing)) / ROUNDS, (min(calls) - min(nothing)) / ROUNDS


@contextmanager
def no_ring_in_new_code() -> Iterator[None]:
    """Code that is made meanwhile has no statement of the ring."""
    kept = code_swap.BEFORE, code_swap.AFTER, code_swap.FLAG
    code_swap.BEFORE = code_swap.BEFORE.replace("_ss_cells[{begun}] = _ss_at\n", "")
    code_swap.AFTER = code_swap.AFTER.replace("_ss_cells[{returned}] = _ss_at\n", "")
    code_swap.FLAG = "pass\n"
    assert "cells" not in code_swap.BEFORE + code_swap.AFTER
    try:
        yield
    finally:
        code_swap.BEFORE, code_swap.AFTER, code_swap.FLAG = kept


def in_turns(step: Callable[[], None], timed: Callable[[], float], recorder: Recorder) -> dict[str, list[float]]:
    functions = bench_launches.wrapper_functions()
    code: dict[str, list[Any]] = {}
    with no_ring_in_new_code():
        tracer.configure()
        code["without"] = code["again"] = [(function, function.__code__) for function in functions]
    tracer.configure()
    code["with"] = [(function, function.__code__) for function in functions]
    code["no marks"] = code["with"]
    ways = ("without", "again", "no marks", "with")
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(TURNS + WARM_TURNS):
        for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
            bench_launches.set_code(code[way])
            recorder.ring.is_on = way in ("no marks", "with")
            recorder.marks._is_off = way != "with"
            recorder.marks.due[0] = time.perf_counter_ns()  # nothing is saved from the turns without marks
            if recorder.lifetimes is not None:
                recorder.lifetimes.every = NEVER
            elapsed = timed()
            if turn >= WARM_TURNS:
                times[way].append(elapsed)
    recorder.ring.is_on = True
    return times


def report(title: str, times: dict[str, list[float]], launches: float) -> None:
    print(f"{title}: recorded without the ring {statistics.median(times['without']):.4f} ms, {launches:.0f} launches")
    for way in ("again", "no marks", "with"):
        ratios = [a / b for a, b in zip(times[way], times["without"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        extra = [(a - b) * 1e6 / launches for a, b in zip(times[way], times["without"], strict=True)]
        print(
            f"  {way + ' / without':<20}{middle:8.4f}   quartiles {low:.4f} .. {high:.4f}"
            f"   {statistics.median(extra):8.0f} ns a launch"
        )


def main() -> int:
    torch.set_num_threads(1)
    a_launch, a_call = bare_ns()
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"the statements alone: {a_launch:.0f} ns a launch, {a_call:.0f} ns a graph call of 300 launches")
    is_cuda = torch.cuda.is_available()
    bench_gpu.STEPS = bench_launches.STEPS = STEPS  # short turns: what else the machine does touches all ways alike
    step = bench_gpu.build(None) if is_cuda else bench_launches.build()
    timed = (lambda: bench_gpu.timed_ms(step, True)) if is_cuda else (lambda: bench_launches.timed_ms(step, True))
    with tempfile.TemporaryDirectory() as folder, tracer.trace(folder) as recorder:
        for _ in range(WARM_TURNS):
            step()
            tracer.step()
        before = recorder._launches + sum((len(c.rows) + 1) // 3 for c in recorder._unwritten._calls)
        step()
        after = recorder._launches + sum((len(c.rows) + 1) // 3 for c in recorder._unwritten._calls)
        title = torch.cuda.get_device_name() if is_cuda else "CPU"
        report(title, in_turns(step, timed, recorder), after - before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
