"""What a judged step costs, in plain steps and in memory: ``python -m tests.benchmarks.bench_judge [cpu|cuda]``.

On the CPU a transformer of two layers (d = 256, 8 x 128 tokens), on a CUDA device eight encoder layers (d = 512,
8 x 256 tokens, bfloat16), forward and backward. One process takes turns: a plain step, a step recorded with the
judge's hooks that is not judged, and a judged step. Times are medians; memory is the peak above that of the imported
libraries.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import torch

import stepscope
from tests.benchmarks.bench_launches import set_code, wrapper_functions
from tests.judge.reading import judged_in
from tests.programs.training import Transformer

TURNS = 5
Step = Callable[[], None]


def build(device: str) -> Step:
    torch.manual_seed(0)
    if device == "cuda":
        layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True) for _ in range(8)]
        model: torch.nn.Module = torch.nn.Sequential(*layers).cuda().bfloat16()
        inputs: tuple[torch.Tensor, ...] = (torch.randn(8, 256, 512, device="cuda", dtype=torch.bfloat16),)
    else:
        model = Transformer(width=256, heads=8, layers=2, tokens=200)
        inputs = (torch.randint(0, 200, (8, 128)), torch.randint(0, 200, (8, 128)))
    compiled = torch.compile(model)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        compiled(*inputs).sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", "utf-8")


def peak_bytes(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> int:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    torch.set_num_threads(1)
    empty = 0
    if device == "cpu":
        reset_peak(device)
        empty = peak_bytes(device)
    ways: dict[str, list[float]] = {"plain": [], "not judged": [], "judged": []}
    peaks: dict[str, int] = dict.fromkeys(ways, 0)
    with tempfile.TemporaryDirectory() as folder, stepscope.trace(folder):  # the judge needs the compiler's record
        step = build(device)
        step()
    functions = wrapper_functions()
    plain = [(one, one.__code__) for one in functions]
    with tempfile.TemporaryDirectory() as folder:
        with stepscope.trace(folder):
            step()
            stepscope.configure(judge=str(10**9))
            hooked = [(one, one.__code__) for one in functions]
            for turn in range(TURNS + 1):
                for way, times in ways.items():
                    set_code(plain if way == "plain" else hooked)
                    repeats = 1 if way == "judged" else 10
                    reset_peak(device)
                    with stepscope.judge() if way == "judged" else nullcontext():
                        started = time.perf_counter()
                        for _ in range(repeats):
                            step()
                        elapsed = (time.perf_counter() - started) / repeats
                    peaks[way] = max(peaks[way], peak_bytes(device) - empty)
                    if turn:
                        times.append(elapsed)
        found = judged_in(Path(folder))
    base = statistics.median(ways["plain"])
    for way, times in ways.items():
        middle = statistics.median(times)
        print(
            f"{way}: {middle * 1e3:.2f} ms, {middle / base:.2f} plain steps;"
            f" peak {peaks[way] / 1e6:.0f} MB, {peaks[way] / peaks['plain']:.2f} of plain"
        )
    print(f"judged {found.judged} of {found.launches} launches, {dict(found.verdicts())}, {len(found.wrong())} wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
