"""Findings that follow from times on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.launches import Calls, DeviceTimes, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.profiles import DeviceWork
from stepscope.tracer.schema.steps import StepMarks
from stepscope.viewer.findings import all_findings
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.store.trace import Trace
from tests.logs.planted import machine
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, argument, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000


def on_gpu(
    precision: str | None,
    host_us: int,
    device_us: tuple[int, int],
    capabilities: Any = ("9.0",),
    profiled_us: int | None = None,
    has_triton: bool = True,
) -> LogBuilder:
    """Ten steps with a matrix product and another kernel; launching each of them takes `host_us`.

    The profiler saw a kernel of `profiled_us` in step 5, and one of half its duration on another stream."""
    sites = [
        LaunchSite(
            0, "call", 20, "extern_kernels.mm", "extern", [argument("arg0_1", "in"), argument("buf0", "out")], []
        ),
        LaunchSite(1, "call", 22, "triton_poi_fused_relu_0", "triton", [argument("buf0", "inout")], []),
    ]
    if not has_triton:
        sites[1] = replace(sites[1], kernel="torch.ops.aten.relu_.default", kind="fallback")
    log = LogBuilder().record(
        run(guesses_steps=True, devices=["GPU"], machine=machine(gpu_capabilities=list(capabilities)))
    )
    log.record(graph(sites=sites, memory=[], functions=["call"], matmul_precision=precision))
    meta = [TensorMeta(at, "float32", [8, 8], [8, 1], "cuda:0", 0, 256) for at in range(2)]
    log.record(Tensors(0, 0, 0, meta))
    for step in range(10):
        start = MONOTONIC_NS + step * 10 * MS
        starts = [start, start + 1000 * host_us]
        calls = Calls([step], [0], [0], [step], [1], [None], [start], [2000 * host_us], [2], ["ok"])
        log.record(Launches(calls, [0, 1], starts, [at + 1000 * host_us - 1000 for at in starts]))
        log.record(StepMarks(["optimizer"], [0], ["SGD"], [1], [start + 10 * MS]))
        if step in (2, 8):
            log.record(DeviceTimes([step, step], [0, 1], [1000 * us for us in device_us], "events"))
    if profiled_us is not None:
        at, ns = MONOTONIC_NS + 50 * MS, 1000 * profiled_us
        log.record(
            DeviceWork(at, at + 10 * MS, ["eager"], [0, 0], [0, 0], [7, 13], [at, at], [ns, ns // 2], [1, 1],
                       [at + 7 * MS] * 2, [None, None], [-1, -1])
        )  # fmt: skip
    return log.record(End("exit", MONOTONIC_NS + 100 * MS))


def kinds(trace: Trace) -> dict[str, Any]:
    return {one.kind: one for one in all_findings(trace)}


def test_products_in_full_float32_are_named(opened: Open) -> None:
    finding = kinds(opened(on_gpu("highest", 100, (6000, 1000))))["full_precision_matmul"]
    assert finding.severity == "warning"
    assert finding.title.startswith("Matrix products in full float32 take 60 % of a step (6.00 ms of 10.0 ms)")
    assert 'set_float32_matmul_precision("high")' in finding.proof[0]


@pytest.mark.parametrize(("precision", "capability"), [("high", "9.0"), (None, "9.0"), ("highest", "7.5")])
def test_products_that_cannot_be_faster_are_not_named(opened: Open, precision: str | None, capability: str) -> None:
    assert "full_precision_matmul" not in kinds(opened(on_gpu(precision, 100, (6000, 1000), (capability,))))


@pytest.mark.slow
def test_a_host_that_cannot_keep_up_is_named(opened: Open) -> None:
    finding = kinds(opened(on_gpu("high", 4000, (500, 500))))["host_bound"]
    assert finding.title.startswith("The program is host-bound: the device is idle for 90 % of a step of 10.0 ms")
    assert "host_bound" not in kinds(opened(on_gpu("high", 4000, (4000, 4000))))
    assert "host_bound" not in kinds(opened(on_gpu("high", 500, (500, 500))))


@pytest.mark.slow
def test_work_that_the_profiler_saw_counts_instead_of_measured_calls(opened: Open) -> None:
    finding = kinds(opened(on_gpu("high", 4000, (4000, 4000), profiled_us=2000)))["host_bound"]
    assert finding.title.startswith("The program is host-bound: the device is idle for 80 % of a step of 10.0 ms")
    assert finding.title.endswith("and running them takes 2.00 ms")
    assert "host_bound" not in kinds(opened(on_gpu("high", 4000, (500, 500), profiled_us=7000)))


def test_a_graph_without_kernels_of_triton_is_on_the_device_of_its_tensors(opened: Open) -> None:
    (run_of_log,) = run_splits(opened(on_gpu("high", 100, (6000, 3000), has_triton=False)))
    assert run_of_log.verdict == "The device works for 90 % of a step (9.00 ms of 10.0 ms)."


def test_a_device_that_works_longer_than_the_host_is_told_so(opened: Open) -> None:
    (run_of_log,) = run_splits(opened(on_gpu("high", 100, (60_000, 9_000))))
    assert run_of_log.verdict == (
        "The device works for 69.0 ms for a step, longer than the 10.0 ms that the step takes on the host, which runs"
        " ahead of the device."
    )


def test_a_device_that_works_all_the_time_is_the_verdict(opened: Open) -> None:
    (run_of_log,) = run_splits(opened(on_gpu("high", 100, (6000, 3000))))
    assert run_of_log.verdict == "The device works for 90 % of a step (9.00 ms of 10.0 ms)."
    (run_of_log,) = run_splits(opened(on_gpu("high", 100, (3000, 3000))))
    assert run_of_log.verdict == (
        "The time between the end of one step and the first compiled graph of the next is 98 % of a step (9.80 ms of"
        " 10.0 ms)."
    )
