"""Builds logs of a GPU program on several ranks, with times of the device and values that follow from them by hand.

Each step has one call with four launches. In microseconds from the start of the call:

    launch            host       on the device       estimated start
    matrix product    10 to 20   100 on stream 7     20, when the launch has returned
    all_reduce        30 to 40   200 on stream 20    120, after the product
    fused kernel      50 to 60   80 on stream 7      120, beside the collective
    wait              70 to 80   5 on stream 7       200; the next work begins when the collective ends, at 320
    fused kernel      90 to 100  30 on stream 7      320
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stepscope.tracer.schema.graphs import LaunchSite, Provenance, SiteProvenance
from stepscope.tracer.schema.launches import Calls, DeviceTimes, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.steps import Steps
from tests.logs.synthetic import MONOTONIC_NS, UNIX_NS, LogBuilder, argument, graph, run

STEPS = 4
PERIOD_US = 1_000
"""Time from one step to the next."""
MODULE = "GPT.layers.0.mlp (MLP)"
PRODUCT, ALL_REDUCE, FUSED, WAIT, LAST = range(5)
DEVICE_US = [100, 200, 80, 5, 30]
STARTS_US = [20, 120, 120, 200, 320]
HOST_US = 10
LAUNCHED_US = [10, 30, 50, 70, 90]
_REDUCE = "torch.ops._c10d_functional.all_reduce_.default"
_WAIT = "torch.ops._c10d_functional.wait_tensor.default"
KERNELS = ["extern_kernels.mm", _REDUCE, "triton_poi_fused_relu_0", _WAIT, "triton_poi_fused_add_1"]
_KINDS = ["extern", "collective", "triton", "collective", "triton"]


def device_log(
    rank: int | None = None, world_size: int | None = None, steps: int = STEPS, slower_us: int = 0
) -> LogBuilder:
    """Return the log of one rank, whose matrix product takes `slower_us` longer."""
    log = LogBuilder(70 + (rank or 0))
    gpus = ["NVIDIA H100 80GB HBM3"] * (world_size or 1)
    log.record(
        run(rank=rank, world_size=world_size, pid=70 + (rank or 0), devices=["cpu (8 cores)", *gpus], unix_ns=UNIX_NS)
    )
    sites = [
        LaunchSite(number, "call", 20 + number, kernel, kind, [argument("buf0", "inout")], [])  # type: ignore[arg-type]
        for number, (kernel, kind) in enumerate(zip(KERNELS, _KINDS, strict=True))
    ]
    log.record(graph(sites=sites, functions=["call"]))
    frames = [Frame("/src/model.py", 12, "forward", "y = (x @ w).relu()")]
    log.record(Provenance(0, frames, [SiteProvenance(n, [[0]], [], [MODULE]) for n in range(len(sites))]))
    tensor = TensorMeta(0, "float32", [4, 8], [8, 1], f"cuda:{rank or 0}", 0, 128)
    for number in range(len(sites)):
        log.record(Tensors(0, 0, number, [replace(tensor)]))
    for step in range(steps):
        add_step(log, step, slower_us)
    return log


def add_step(log: LogBuilder, step: int, slower_us: int = 0) -> None:
    start_ns = MONOTONIC_NS + step * PERIOD_US * 1000
    starts = [start_ns + us * 1000 for us in LAUNCHED_US]
    ends = [ns + HOST_US * 1000 for ns in starts]
    about = Calls([step], [0], [0], [step], [1], [None], [start_ns], [110_000], [len(starts)], ["ok"])
    log.record(Launches(about, list(range(len(starts))), starts, ends))
    durations = [us * 1000 for us in DEVICE_US]
    durations[PRODUCT] += slower_us * 1000
    log.record(DeviceTimes([step] * len(starts), list(range(len(starts))), durations, "events"))
    log.record(Steps([step], ["train"], ["user"], [start_ns], [start_ns + 900_000]))


def write_ranks(folder: Path, ranks: int = 2) -> Path:
    for rank in range(ranks):
        log = device_log(rank, ranks, slower_us=20 * rank)
        log.write(folder / f"stepscope_trace_rank_{rank}_x.log")
    return folder
