"""What reading statistics costs on a CUDA device: ``python -m tests.benchmarks.bench_gpu_stats``.

Bandwidth: the device's time of a reading against that of `torch.sum` of the same tensor, in turns, from CUDA events
around several calls. Host: microseconds of a call, best of several rounds, with the device idle and a flush in between.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from stepscope.tracer.runtime.stats.arena import arena_of
from stepscope.tracer.runtime.stats.cuda import CudaReader

TURNS, CALLS = 15, 8


def device_us(call: Callable[[], object]) -> float:
    start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda._sleep(400_000)  # type: ignore[no-untyped-call]  # the host gets ahead
    start.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / CALLS


def bandwidth() -> None:
    print(f"{'tensor':<34}{'torch.sum us':>14}{'reading us':>12}{'TB/s':>8}{'of torch.sum':>14}")
    for mib in (64, 256, 1024):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            plain = torch.randn((mib << 20) // dtype.itemsize, device="cuda", dtype=dtype)
            for name, x in (
                ("normal", plain),
                ("relu", plain.relu()),
                ("one infinity", _with(plain, 1 << 40)),
                ("1/3 infinite", _with(plain, 3)),
            ):
                reader = CudaReader([x])
                sums: list[float] = []
                reads: list[float] = []
                for _ in range(TURNS):
                    sums.append(device_us(x.sum))
                    reads.append(device_us(lambda reader=reader, x=x: reader([x])))  # type: ignore[misc]
                    arena_of(0).flush()
                a, b = statistics.median(sums), statistics.median(reads)
                label = f"{mib} MiB {str(dtype).removeprefix('torch.')} {name}"
                print(f"{label:<34}{a:14.1f}{b:12.1f}{x.nbytes / b / 1e6:8.2f}{a / b:14.1%}", flush=True)


def many() -> None:
    """Print the bandwidth of readings of many tensors, and of views; `torch.sum` takes a launch for each tensor."""
    print()
    joint = [torch.randn(4, 2048, 3, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(16)]
    views = [view for one in joint for view in one.permute(2, 0, 3, 1, 4).unbind(0)]
    for name, tensors in (
        *((f"{n} x {mib} MiB bfloat16", _randoms(n, mib)) for n in (4, 16, 64) for mib in (1, 8, 32)),
        ("3 x 32 MiB, q, k and v of one product", views[:3]),
        ("48 x 32 MiB, q, k and v of 16 products", views),
        ("8 x 32 MiB, transposed", [x.view(2048, 8192).t() for x in _randoms(8, 32)]),
        ("4 x 32 MiB, every second element", [x[::2] for x in _randoms(4, 64)]),
    ):
        reader = CudaReader(tensors)
        times = []
        for _ in range(TURNS):
            times.append(device_us(lambda reader=reader, tensors=tensors: reader(tensors)))  # type: ignore[misc]
            arena_of(0).flush()
        middle = statistics.median(times)
        print(f"{name:<42}{middle:12.1f} us{sum(x.nbytes for x in tensors) / middle / 1e6:8.2f} TB/s", flush=True)


def _randoms(n: int, mib: int) -> list[torch.Tensor]:
    return [torch.randn(mib << 19, device="cuda", dtype=torch.bfloat16) for _ in range(n)]


def _with(x: torch.Tensor, step: int) -> torch.Tensor:
    x = x.clone()
    x[x.numel() // 3 :: step] = float("inf")
    return x


def host() -> None:
    print()
    for n in (1, 4, 16):
        for elements in (1000, 262_144):
            tensors = [torch.randn(elements, device="cuda", dtype=torch.bfloat16) for _ in range(n)]
            reader = CudaReader(tensors)
            best = min(_round(reader, tensors) for _ in range(30))
            alone = device_us(lambda reader=reader, tensors=tensors: reader(tensors))  # type: ignore[misc]
            arena_of(0).flush()
            print(
                f"{n:3d} tensors of {elements:7d} bfloat16: {best:6.2f} us of the host, {alone:6.2f} us of the device"
            )
    torch.cuda.synchronize()
    reader([*tensors])
    start = time.perf_counter()
    arena_of(0).flush()
    print(f"flush of a few rows: {(time.perf_counter() - start) * 1e6:.1f} us of the host")
    blocks = [reader(tensors) for _ in range(60)]
    start = time.perf_counter()
    arena_of(0).flush()
    middle = time.perf_counter()
    blocks[-1].wait()
    end = time.perf_counter()
    print(f"flush of 960 rows: {(middle - start) * 1e6:.1f} us of the host, {(end - middle) * 1e6:.0f} us until read")


def _round(reader: CudaReader, tensors: list[torch.Tensor]) -> float:
    torch.cuda.synchronize()
    calls = 60
    start = time.perf_counter()
    for _ in range(calls):
        reader(tensors)
    spent = time.perf_counter() - start
    arena_of(0).flush()
    return spent / calls * 1e6


def main() -> int:
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    start = time.perf_counter()
    CudaReader([torch.ones(1, device="cuda")])
    print(f"first reader: {time.perf_counter() - start:.1f} s\n")
    bandwidth()
    many()
    host()
    return 0


if __name__ == "__main__":
    sys.exit(main())
