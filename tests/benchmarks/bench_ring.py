"""What the launch ring costs: ``python -m tests.benchmarks.bench_ring``.

First what is done at each launch and at each graph call, timed alone.
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

import stepscope
from stepscope.tracer.inductor import code_swap
from stepscope.tracer.log.launch_ring import FunctionShape, LaunchRing
from stepscope.tracer.recorder import Recorder
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.ticks import tick_type
from tests.benchmarks import bench_gpu, bench_launches

ROUNDS, REPEATS = 1_000, 300
TURNS, WARM_TURNS, STEPS = 500, 6, 5
NEVER = 2**40
"""Of steps between two whose storages are followed."""


def ring_in(folder: str) -> LaunchRing:
    def say(why: str) -> None:
        raise RuntimeError(why)

    return LaunchRing(lambda: Path(folder, "bench.log"), say)


def least_ns(statement: Callable[[], object]) -> float:
    """What one run of it takes, the call of a function not counted."""

    def taken_ns(run: Callable[[], object]) -> int:
        start = time.perf_counter_ns()
        for _ in range(ROUNDS):
            run()
        return time.perf_counter_ns() - start

    pairs = [(taken_ns(statement), taken_ns(lambda: None)) for _ in range(REPEATS)]
    return (min(taken for taken, _ in pairs) - min(nothing for _, nothing in pairs)) / ROUNDS


def bare_ns() -> dict[str, float]:
    """Of what is done at each launch and each graph call."""
    shape = FunctionShape(0, 300)
    now: Callable[[], int] = time.perf_counter_ns
    with tempfile.TemporaryDirectory() as folder:
        ring = ring_in(folder)
        call = GraphCall(0, 0, None, None)
        ring.begin(call, shape)
        cells, rows = call.cells, call.rows

        def launch(cells: memoryview | None = cells) -> None:
            rows.append(20)
            at = now()
            if cells is not None:
                cells[40] = at
            rows.append(at)
            at = now()
            if cells is not None:
                cells[41] = at
            rows.append(at)
            rows.clear()

        def graph_call() -> None:
            ring.begin(call, shape)
            ring.started(call, shape)
            ring.end(call, shape)
            ring.give_back(call.block)

        found = {
            "a launch, in Python": least_ns(launch),
            "without the ring": least_ns(lambda: launch(None)),
            "a graph call of 300 launches": least_ns(graph_call),
        }
        make = tick_type()
        if make is not None:
            tick = make(cells)
            tick.rows = rows

            def ticks() -> None:
                tick(40, 20)
                tick(41)
                rows.clear()

            found["a launch, compiled"] = least_ns(ticks)
            del tick, ticks
        ring.close(keep=False)
    return found


@contextmanager
def no_ring_in_new_code() -> Iterator[None]:
    """Code that is made meanwhile has no statement of the ring; what is compiled writes to memory of its own."""
    kept = code_swap.PYTHON_TICKS, code_swap.FLAG
    bare = (text.replace(" _ss_cells[{cell}] = _ss_at;", "") for text in code_swap.PYTHON_TICKS[1:])
    code_swap.PYTHON_TICKS, code_swap.FLAG = code_swap.TickStatements(code_swap.PYTHON_TICKS.names, *bare), "pass\n"
    assert not any("_ss_cells[" in text for text in code_swap.PYTHON_TICKS)
    try:
        yield
    finally:
        code_swap.PYTHON_TICKS, code_swap.FLAG = kept


def in_turns(step: Callable[[], None], timed: Callable[[], float], recorder: Recorder) -> dict[str, list[float]]:
    functions = bench_launches.wrapper_functions()
    code: dict[str, list[Any]] = {}
    with no_ring_in_new_code():
        stepscope.configure()
        code["without"] = code["again"] = [(function, function.__code__) for function in functions]
    stepscope.configure()
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
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")
    print("alone: " + ", ".join(f"{what} {ns:.0f} ns" for what, ns in bare_ns().items()))
    is_cuda = torch.cuda.is_available()
    bench_gpu.STEPS = bench_launches.STEPS = STEPS  # short turns: what else the machine does touches all ways alike
    step = bench_gpu.build(None) if is_cuda else bench_launches.build()
    timed = (lambda: bench_gpu.timed_ms(step, True)) if is_cuda else (lambda: bench_launches.timed_ms(step, True))
    with tempfile.TemporaryDirectory() as folder, stepscope.trace(folder) as recorder:
        for _ in range(WARM_TURNS):
            step()
            stepscope.step()
        before = recorder._outbox.overhead.launches + sum(
            (len(c.rows) + 1) // 3 for c in recorder._outbox.pending._calls
        )
        step()
        after = recorder._outbox.overhead.launches + sum(
            (len(c.rows) + 1) // 3 for c in recorder._outbox.pending._calls
        )
        title = torch.cuda.get_device_name() if is_cuda else "CPU"
        report(title, in_turns(step, timed, recorder), after - before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
