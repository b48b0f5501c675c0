"""What recording costs a training step on a CUDA device: ``python -m tests.benchmarks.bench_gpu``.

Eight transformer layers (d = 512, 8 x 256 tokens, bfloat16), forward and backward. In one process, in turns: the
unrecorded step, the same again, launches only, values, values with every argument read again before each launch;
then the same under CUDA graphs, where the code that was recorded into a graph cannot be exchanged: one compile is
measured unrecorded, another one recorded. Prints ratios to the unrecorded step.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

import stepscope
from stepscope.tracer.recorder import Recorder
from stepscope.tracer.runtime.active import current
from tests.benchmarks.bench_launches import set_code, wrapper_functions
from tests.capture.logs import Trace

TURNS, WARM_TURNS, STEPS = 30, 5, 10
WAYS = ("off", "again", "launches", "lifetimes", "values", "verify")
NEVER = 2**40
"""Of steps between two whose storages are followed."""
Step = Callable[[], None]


def build(mode: str | None) -> Step:
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True) for _ in range(8)]
    model = torch.nn.Sequential(*layers).cuda().bfloat16()
    x = torch.randn(8, 256, 512, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(model, mode=mode)

    def step() -> None:
        if mode is not None:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        compiled(x).sum().backward()

    return step


def timed_ms(step: Step, ends_step: bool) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(STEPS):
        step()
        if ends_step:
            stepscope.step()
    recorder = current()
    if ends_step and isinstance(recorder, Recorder):
        recorder.flush(wait=True)
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start) / 1e6 / STEPS


def in_turns(folder: Path) -> dict[str, list[float]]:
    step = build(None)
    for _ in range(WARM_TURNS):
        step()
    functions = wrapper_functions()
    code: dict[str, list[tuple[FunctionType, CodeType]]] = {}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    code["off"] = code["again"] = [(function, function.__code__) for function in functions]
    with stepscope.trace(folder) as recorder:
        ways: dict[str, dict[str, Any]] = {
            "launches": {}, "lifetimes": {}, "values": {"level": "values"}, "verify": {"verify_before": True}
        }  # fmt: skip
        for way, settings in ways.items():
            stepscope.configure(**settings)
            code[way] = [(function, function.__code__) for function in functions]
        for turn in range(TURNS + WARM_TURNS):
            for way in WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]:
                set_code(code[way])
                if recorder.lifetimes is not None:
                    recorder.lifetimes.every = 1 if way == "lifetimes" else NEVER
                elapsed = timed_ms(step, way not in ("off", "again"))
                if turn >= WARM_TURNS:
                    times[way].append(elapsed)
    return times


def under_cuda_graphs(folder: Path) -> dict[str, list[float]]:
    plain = build("reduce-overhead")
    for _ in range(WARM_TURNS):
        plain()
    times: dict[str, list[float]] = {"off": [], "values": []}
    with stepscope.trace(folder, level="values"):
        recorded = build("reduce-overhead")
        for _ in range(WARM_TURNS):
            recorded()
        for turn in range(TURNS + WARM_TURNS):
            for way, step in (("off", plain), ("values", recorded))[:: 1 if turn % 2 else -1]:
                elapsed = timed_ms(step, way == "values")
                if turn >= WARM_TURNS:
                    times[way].append(elapsed)
    return times


def peak_bytes(level: str) -> int:
    with tempfile.TemporaryDirectory() as folder, stepscope.trace(folder, level=level):
        step = build(None)
        for _ in range(WARM_TURNS):
            step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()


def report(title: str, times: dict[str, list[float]]) -> None:
    print(f"{title}: unrecorded step {statistics.median(times['off']):.3f} ms")
    for way in [way for way in times if way != "off"]:
        ratios = [a / b for a, b in zip(times[way], times["off"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"  {way + ' / unrecorded':<24}{middle:8.3f}   quartiles {low:.3f} .. {high:.3f}")


def report_log(folder: Path) -> None:
    trace = Trace(folder)
    rows = sum(len(batch["min"]) for batch in trace.of("values"))
    size = sum(
        len(r.payload or b"") for r in trace.records if r.artifact in ("stepscope_values", "stepscope_value_layout")
    )
    states = sorted({state for batch in trace.of("launches") for state in batch["calls"]["state"]})
    print(f"  {rows:,} value rows, {size / max(rows, 1):.1f} bytes each; calls: {', '.join(states)}")
    calls = sum(len(batch["calls"]["state"]) for batch in trace.of("launches"))
    for cost in trace.of("overhead"):
        hooks, reading = cost["hook_ns"] / max(calls, 1) / 1e6, (cost["stats_ns"] or 0) / max(calls, 1) / 1e6
        print(f"  hooks {hooks:.3f} ms a call, of that reading {reading:.3f}")
    for record in [*trace.of("skipped"), *trace.of("failure")]:
        print("  not recorded:", record)


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device here")
        return 0
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    with tempfile.TemporaryDirectory() as folder:
        report("default mode", in_turns(Path(folder)))
        report_log(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        report("CUDA graphs", under_cuda_graphs(Path(folder)))
        report_log(Path(folder))
    off, values = peak_bytes("off"), peak_bytes("values")
    print(f"peak allocated: unrecorded {off:,} bytes, values {values:,} bytes, difference {values - off:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
