"""What recording values costs a training step on the CPU: ``python -m tests.benchmarks.bench_values``.

One process compiles a transformer of four layers once and takes turns of a few steps: unrecorded, the same again,
launches only, values, values with every argument read again before each launch. Prints ratios to the unrecorded step
of the same turn, and the size of a value row in the log.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType

import torch

import stepscope
from tests.benchmarks.bench_launches import set_code, timed_ms, wrapper_functions
from tests.capture.logs import Trace
from tests.programs.training import Transformer

TURNS, WARM_TURNS = 12, 2
WAYS = ("off", "again", "launches", "values", "verify")


def build() -> Callable[[], None]:
    torch.manual_seed(0)
    model = Transformer(width=128, heads=4, layers=4, tokens=200)
    ids, targets = torch.randint(0, 200, (4, 64)), torch.randint(0, 200, (4, 64))
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        compiled(ids, targets).backward()

    return step


def codes(functions: list[FunctionType]) -> list[tuple[FunctionType, CodeType]]:
    return [(function, function.__code__) for function in functions]


def take_turns(step: Callable[[], None], folder: Path) -> dict[str, list[float]]:
    functions = wrapper_functions()
    code = {"off": codes(functions), "again": codes(functions)}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    with stepscope.trace(folder):
        code["launches"] = codes(functions)
        stepscope.configure(level="values")
        code["values"] = codes(functions)
        stepscope.configure(verify_before=True)
        code["verify"] = codes(functions)
        for turn in range(TURNS + WARM_TURNS):
            for way in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                set_code(code[way])
                elapsed = timed_ms(step, way not in ("off", "again"))
                if turn >= WARM_TURNS:
                    times[way].append(elapsed)
    return times


def main() -> int:
    torch.set_num_threads(2)
    step = build()
    for _ in range(WARM_TURNS):
        step()
    with tempfile.TemporaryDirectory() as folder:
        times = take_turns(step, Path(folder))
        trace = Trace(Path(folder))
    batches = [r.payload or b"" for r in trace.records if r.artifact in ("stepscope_values", "stepscope_value_layout")]
    rows = sum(len(batch["min"]) for batch in trace.of("values"))
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {torch.get_num_threads()} threads")
    print(f"unrecorded step: {statistics.median(times['off']):.2f} ms, {rows:,} value rows in all\n")
    for way in WAYS[1:]:
        ratios = [a / b for a, b in zip(times[way], times["off"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{way + ' / unrecorded':<26}{middle:8.3f}   quartiles {low:.3f} .. {high:.3f}")
    print(f"\nbytes a value row in the log {sum(map(len, batches)) / rows:6.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
