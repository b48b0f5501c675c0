"""What recording launches costs a training step: ``python -m tests.benchmarks.bench_launches``.

One process compiles a transformer once and then takes turns of a few steps, so that a machine that grows slower or
faster meanwhile does not count: steps as they were before recording, the same again, recorded steps. The turns
exchange the code objects of the wrapper's functions, which is all that recording changes in them. A step is the
forward and the backward pass and, where recorded, `stepscope.step()`. The turns that are alike show the noise.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType

import torch
from torch._inductor.codecache import PyCodeCache

import stepscope
from tests.capture.logs import Trace
from tests.programs.training import Transformer

TURNS, WARM_TURNS, STEPS = 150, 6, 4
WAYS = ("off", "again", "recorded", "lifetimes")
NEVER = 2**40
"""Of steps between two whose storages are followed."""


def build() -> Callable[[], None]:
    torch.manual_seed(0)
    model = Transformer(width=128, heads=4, layers=2, tokens=100)
    ids, targets = torch.randint(0, 100, (4, 64)), torch.randint(0, 100, (4, 64))
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        compiled(ids, targets).backward()

    return step


def wrapper_functions() -> list[FunctionType]:
    return [
        value
        for module in PyCodeCache.modules
        for value in [*vars(module).values(), *vars(getattr(module, "Runner", object)).values()]
        if isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__
    ]


def set_code(pairs: list[tuple[FunctionType, CodeType]]) -> None:
    for function, code in pairs:
        function.__code__ = code


def timed_ms(step: Callable[[], None], ends_step: bool) -> float:
    """Mean of the steps of a turn: what is written now and then counts with its share."""
    start = time.perf_counter_ns()
    for _ in range(STEPS):
        step()
        if ends_step:
            stepscope.step()
    return (time.perf_counter_ns() - start) / 1e6 / STEPS


def take_turns(step: Callable[[], None], folder: Path) -> dict[str, list[float]]:
    functions = wrapper_functions()
    original = [(function, function.__code__) for function in functions]
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    with stepscope.trace(folder) as recorder:
        recorded = [(function, function.__code__) for function in functions]
        for turn in range(TURNS + WARM_TURNS):
            for way in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                set_code(recorded if way in ("recorded", "lifetimes") else original)
                assert recorder.lifetimes is not None
                recorder.lifetimes.every = 1 if way == "lifetimes" else NEVER
                elapsed = timed_ms(step, way in ("recorded", "lifetimes"))
                if turn >= WARM_TURNS:
                    times[way].append(elapsed)
        set_code(recorded)  # as the recorder left it
    return times


def report(name: str, values: list[float], unit: str) -> None:
    low, middle, high = statistics.quantiles(values, n=4)
    print(f"{name:<26}{middle:9.4f} {unit:<10} quartiles {low:.4f} .. {high:.4f}")


def main() -> int:
    torch.set_num_threads(1)
    step = build()
    for _ in range(WARM_TURNS):
        step()
    with tempfile.TemporaryDirectory() as folder:
        times = take_turns(step, Path(folder))
        trace = Trace(Path(folder))
        log_bytes = sum(path.stat().st_size for path in trace.paths)
    launches = sum(1 for _ in trace.launches())
    batches = [record.payload or b"" for record in trace.records if record.artifact == "stepscope_launches"]
    steps = (TURNS + WARM_TURNS) * STEPS * 2
    per_step = launches / steps
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"{TURNS} turns of {STEPS} steps, {per_step:.0f} launches a step\n")
    report("not recorded", times["off"], "ms a step")
    report("not recorded, again", times["again"], "ms a step")
    report("recorded", times["recorded"], "ms a step")
    report("and every storage", times["lifetimes"], "ms a step")
    print()
    off, again, recorded = times["off"], times["again"], times["recorded"]
    report("again / not recorded", [a / b for a, b in zip(again, off, strict=True)], "")
    report("recorded / not recorded", [r / b for r, b in zip(recorded, off, strict=True)], "")
    lifetimes = [a / b for a, b in zip(times["lifetimes"], recorded, strict=True)]
    report("every storage / recorded", lifetimes, "")
    medians = statistics.median(recorded) / statistics.median([*off, *again])
    extra_us = (statistics.median(recorded) - statistics.median([*off, *again])) * 1e3
    print(f"ratio of the medians      {medians:9.4f}            {extra_us / per_step:.2f} us a launch")
    print(f"\nbytes a launch, its batch  {sum(map(len, batches)) / launches:8.1f}")
    print(f"bytes a launch, whole log  {log_bytes / launches:8.1f}   over {steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
