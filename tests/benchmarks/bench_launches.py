"""What recording launches costs on a training step: python -m tests.benchmarks.bench_launches [--device cuda]

Unrecorded and recorded steps take turns in one process. Printed are ratios to the unrecorded step of the same
run, of wall time and (on the CPU, where a neighbour's load moves wall times) of the process's own CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

import tracer

ROUNDS = 15
STEPS = 20
Sample = tuple[float, float]
"""Wall and CPU seconds of a step."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    step = training_step(device)
    for _ in range(5):
        step()
    with tempfile.TemporaryDirectory() as folder:
        measure(step, device, Path(folder))


def training_step(device: str) -> Callable[[], None]:
    """Forward, backward and optimizer of a transformer: a few milliseconds a step on either device."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width, layers, dtype = (64, 2, torch.float32) if device == "cpu" else (512, 8, torch.bfloat16)
    batch, length = (2, 32) if device == "cpu" else (8, 256)
    blocks = [
        nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, dtype=dtype)
        for _ in range(layers)
    ]
    model = nn.Sequential(*blocks).to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(batch, length, width, device=device, dtype=dtype)

    def step() -> None:
        optimizer.zero_grad()
        compiled(x).float().square().mean().backward()
        optimizer.step()

    return step


def measure(step: Callable[[], None], device: str, folder: Path) -> None:
    off: list[Sample] = []
    again: list[Sample] = []
    on: list[Sample] = []
    for number in range(ROUNDS):
        off.append(timed(step, device))
        with tracer.trace(folder / str(number)) as recorder:
            step()  # describes the arguments of every launch site once
            on.append(timed(step, device))
        again.append(timed(step, device))
    assert recorder.path is not None
    launches, size = launches_of(recorder.path)
    print(f"{device}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"step, unrecorded         {statistics.median(w for w, _ in off) * 1e3:8.3f} ms")
    print(f"launches a step          {launches / (STEPS + 1):8.0f}")
    show("recorded / unrecorded", on, off)
    show("detached / unrecorded", again, off)
    print(f"bytes a launch           {size / launches:8.1f}  (records of launches and steps)")


def timed(step: Callable[[], None], device: str) -> Sample:
    synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(STEPS):
        step()
    synchronize(device)
    return (time.perf_counter() - wall) / STEPS, (time.process_time() - cpu) / STEPS


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def show(what: str, of: Sequence[Sample], to: Sequence[Sample]) -> None:
    for name, index in (("wall", 0), ("CPU", 1)):
        ratios = sorted(a[index] / b[index] for a, b in zip(of, to, strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4)
        best = min(a[index] for a in of) / min(b[index] for b in to)
        print(f"{what}, {name:4} {middle:6.3f}  (quartiles {low:.3f} to {high:.3f}, best of each {best:.3f})")


def launches_of(path: Path) -> tuple[int, int]:
    """Launches in a log, and the bytes of the records that hold them and their steps."""
    import orjson

    from tracer import log_format

    data, launches, size = path.read_bytes(), 0, 0
    for place in log_format.scan(data):
        header = data[place.start : place.header_end]
        if b'"stepscope_launches"' in header or b'"stepscope_steps"' in header:
            size += place.end - place.start
            payload = orjson.loads(log_format.decode_payload(data[place.payload_start : place.end]))
            launches += len(payload.get("site", ()))
    return launches, size


if __name__ == "__main__":
    main()
