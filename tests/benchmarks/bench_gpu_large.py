"""What recording costs a step that is bound by a CUDA device: ``python -m tests.benchmarks.bench_gpu_large``.

Sixteen transformer blocks (width 2048, 4 x 2048 tokens, bfloat16) with AdamW: 1.1 billion parameters. In one process,
in turns: the unrecorded step, the same again, and each level. Beside the measurement stands the model: the bytes of
a step's value rows at the bandwidth that `torch.sum` reaches for one large tensor, and each launch that reads with what
a reading of one element takes on the device. The share of that bandwidth is that of the kernels that read, by the
profiler's times.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import stepscope
from stepscope.tracer.runtime.stats.cuda import SIZES, CudaReader
from tests.benchmarks.bench_gpu import Step, report
from tests.benchmarks.bench_gpu_stats import device_us
from tests.capture.logs import Trace

TURNS, WARM_TURNS, STEPS = 9, 2, 3
READERS = {f"read{size}" for size in SIZES}
"""Names of the kernels that read."""
WAYS: dict[str, dict[str, Any]] = {
    "off": {"level": "off"},
    "again": {"level": "off"},
    "launches": {"level": "launches"},
    "values": {"level": "values", "verify_before": False},
    "verify": {"level": "values", "verify_before": True},
}


class Block(nn.Module):
    """A pre-norm transformer block with a gated feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 4 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        joint = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = joint.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, tokens, width))
        y = self.norms[1](x)
        gated: Tensor = self.down(F.silu(self.gate(y)) * self.up(y))
        return x + gated


def build() -> Step:
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(2048, 16) for _ in range(16)]).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(4, 2048, 2048, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(model)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        compiled(x).float().pow(2).mean().backward()
        optimizer.step()

    return step


def timed_ms(step: Step, marks_steps: bool) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(STEPS):
        step()
        if marks_steps:
            stepscope.step()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start) / 1e6 / STEPS


def in_turns(step: Step, folder: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    ways = list(WAYS)
    with stepscope.trace(folder):
        for turn in range(TURNS + WARM_TURNS):
            for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                stepscope.configure(**WAYS[way])
                for _ in range(2):
                    step()
                elapsed = timed_ms(step, way not in ("off", "again"))
                if turn >= WARM_TURNS:
                    times[way].append(elapsed)
    return times


def peak_bytes(step: Step) -> int:
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def bytes_of_a_step(step: Step) -> tuple[int, int]:
    """Return the rows and the bytes that are read in one step at level `values`."""
    with tempfile.TemporaryDirectory() as name:
        with stepscope.trace(name, level="values"):
            step()
        trace = Trace(Path(name))
    layouts = {layout["layout"]: layout for layout in trace.of("value_layout")}
    sizes = [
        count * getattr(torch, dtype).itemsize
        for batch in trace.of("values")
        for number in batch["layout"]
        for count, dtype in zip(layouts[number]["looked_at"], layouts[number]["dtype"], strict=True)
    ]
    return len(sizes), sum(sizes)


def reading_kernels(step: Step) -> tuple[int, float]:
    """Return the number of launches that read in one step at level `values`, and their time on the device in ms."""
    with tempfile.TemporaryDirectory() as name, stepscope.trace(name, level="values"):
        step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            step()
            torch.cuda.synchronize()
    found = [event for event in profiler.events() if event.name in READERS]
    return len(found), sum(event.device_time_total for event in found) / 1e3


def report_model(step: Step, times: dict[str, list[float]]) -> None:
    rows, size = bytes_of_a_step(step)
    large = torch.randn(1 << 29, device="cuda", dtype=torch.bfloat16)
    bandwidth = large.nbytes / device_us(large.sum) * 1e6
    least_ms = size / bandwidth * 1e3
    launches, kernels_ms = reading_kernels(step)
    one = large[:1]
    reader = CudaReader([one])
    launch_us = device_us(lambda: reader([one]))
    extra_ms = statistics.median(times["values"]) - statistics.median(times["off"])
    print(f"  a step reads {rows:,} value rows, {size / 1e9:.1f} GB: {least_ms:.1f} ms at {bandwidth / 1e12:.2f} TB/s")
    print(f"  {launches} launches of {launch_us:.1f} us: {launches * launch_us / 1e3:.1f} ms")
    print(f"  model: {least_ms + launches * launch_us / 1e3:.1f} ms; measured: {extra_ms:.1f} ms a step", end="")
    print(f", kernels that read {kernels_ms:.1f} ms, {least_ms / kernels_ms:.0%} of the bandwidth of torch.sum")


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device here")
        return 0
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    step = build()
    for _ in range(3):
        step()
    peak = peak_bytes(step)
    with tempfile.TemporaryDirectory() as folder:
        times = in_turns(step, Path(folder))
    report("16 blocks of width 2048", times)
    with tempfile.TemporaryDirectory() as folder, stepscope.trace(folder, level="values"):
        step()
        recorded = peak_bytes(step)
    print(f"  peak allocated: {peak:,} bytes unrecorded, {recorded - peak:+,} with values")
    report_model(step, times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
