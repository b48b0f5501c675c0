"""What reading a tensor on the CPU costs: ``python -m tests.benchmarks.bench_stats``.

Ratios to operations that also touch each byte, taken in turns so that a machine that grows slower counts for all.
The least of the turns: other programs only add.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from stepscope.tracer.runtime.stats.parts import parts
from stepscope.tracer.runtime.stats.readers import reader_for, why_not_compiled

SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "64 MB": 1 << 26}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
TURNS = 15


def least_us(actions: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(TURNS):
        for name, action in actions.items():
            start = time.perf_counter_ns()
            for _ in range(calls):
                action()
            best[name] = min(best[name], (time.perf_counter_ns() - start) / calls / 1000)
    return best


def filled(dtype: torch.dtype, nbytes: int) -> Tensor:
    numbers = torch.randn(nbytes // dtype.itemsize)
    return (numbers * 1000).to(dtype) if not dtype.is_floating_point else numbers.to(dtype)


def compare(dtype: torch.dtype, size: str) -> None:
    nbytes = SIZES[size]
    tensors = [filled(dtype, nbytes)]
    reader = reader_for(tensors, 1 << 40)
    actions: dict[str, Callable[[], object]] = {
        "ours": lambda: reader(tensors),
        "sum": tensors[0].sum,
        "clone": tensors[0].clone,
    }
    if dtype.is_floating_point:
        in_each_block, every_second = [tensors[0].clone()], [tensors[0].clone()]
        in_each_block[0][::4096] = float("nan")
        every_second[0][torch.rand(len(tensors[0])) < 0.5] = float("nan")
        actions["in each block"] = lambda: reader(in_each_block)
        actions["half"] = lambda: reader(every_second)
    best = least_us(actions, max(1, min(2000, (1 << 21) // nbytes)))
    ours = best["ours"]
    line = (
        f"{dtype!s:15} {size:>6} {ours:10.1f} us {nbytes / ours / 1000:6.1f} GB/s  "
        f"{ours / best['sum']:5.2f} x sum  {ours / best['clone']:5.2f} x clone"
    )
    if dtype.is_floating_point:
        line += f"  {best['in each block'] / ours:5.2f} x with a NaN in each block"
        line += f"  {best['half'] / ours:5.2f} x half NaN"
    print(line)


def overhead() -> None:
    one, two = [torch.randn(8)], [torch.randn(8), torch.randn(8, 8)]
    read_one, read_two = reader_for(one, 1 << 20), reader_for(two, 1 << 20)
    actions: dict[str, Callable[[], object]] = {
        "an empty call": lambda: None,
        "sum of 8 elements": one[0].sum,
        "reading one small tensor": lambda: read_one(one),
        "reading two": lambda: read_two(two),
        "parts of a tensor": lambda: parts(one[0]),
    }
    for name, us in least_us(actions, 2000).items():
        print(f"{name:25} {us:6.2f} us")


def main() -> int:
    print(f"threads: {torch.get_num_threads()}; compiled: {why_not_compiled() or 'yes'}")
    overhead()
    print("one read against a sum, a clone; one read of NaN data against finite data")
    for dtype in DTYPES:
        for size in SIZES:
            compare(dtype, size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
