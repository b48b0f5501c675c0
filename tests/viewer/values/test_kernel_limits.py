"""Kernels against what their machine can do at most, from their bytes and operations, and why some have no limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from stepscope.tracer.schema.launches import DeviceTimes, TensorMeta, Tensors
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries import kernel_limits as limits_of
from stepscope.viewer.values.queries.kernel_limits import KernelLimit, kernel_limits
from stepscope.viewer.values.queries.kernels import kernel_rows
from tests.logs.planted import machine
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import LAUNCH_NS, Program, ValueLog
from tests.viewer.client import Client

Open = Callable[[LogBuilder], Trace]
GPU = "Some GPU"
MEASURED = {"cpu": {"memory": 4e9, "float32": 1e12}, GPU: {"memory": 2e10, "bfloat16": 1e13}}


def log_of(
    program: Program, calls: int = 2, limits: object = MEASURED, gpus: Sequence[str] = (), precision: str = "highest"
) -> ValueLog:
    log = ValueLog(devices=["cpu", *gpus], machine=machine(limits=limits))
    log.log.record(replace(program.graph(), matmul_precision=precision)).record(program.provenance())
    for step in range(calls):
        log.call(program, step)
    return log


def sized(
    program: Program, sizes: Sequence[Sequence[int]], call: int = 0, dtype: str = "float32", device: str = "cpu"
) -> Tensors:
    metas = [TensorMeta(n, dtype, list(size), [1] * len(size), device, 0, 4096) for n, size in enumerate(sizes)]
    return Tensors(program.number, call, 0, metas)


def only(trace: Trace) -> KernelLimit:
    (row,) = kernel_limits(trace, kernel_rows(trace))
    return row


def test_a_generated_kernel_is_limited_by_the_memory(opened: Open) -> None:
    program = Program().launch("cpp_fused_relu_0", ["primals_1"], ["buf0"], "cpp")
    log = log_of(program)
    log.log.record(sized(program, [[2, 5], [10]]))
    row = only(opened(log.end()))
    least_ns = 2 * (10 + 10) * 4 / 4e9 * 1e9
    time_ns = 2 * (LAUNCH_NS // 2)
    assert (row.bound, row.least_ns, row.time_ns) == ("memory", round(least_ns), time_ns)
    assert row.share == pytest.approx(least_ns / time_ns)
    assert row.lost_ns == time_ns - least_ns


@pytest.mark.parametrize(
    ("kernel", "reads", "sizes", "operations"),
    [
        ("extern_kernels.mm", ["a", "b"], [[30, 20], [20, 50], [30, 50]], 2 * 30 * 20 * 50),
        ("extern_kernels.addmm", ["c", "a", "b"], [[50], [30, 20], [20, 50], [30, 50]], 2 * 30 * 20 * 50),
        ("extern_kernels.bmm", ["a", "b"], [[7, 30, 20], [7, 20, 50], [7, 30, 50]], 2 * 7 * 30 * 20 * 50),
    ],
)
def test_a_product_is_limited_by_its_operations(
    opened: Open, kernel: str, reads: list[str], sizes: list[list[int]], operations: int
) -> None:
    program = Program().launch(kernel, reads, ["buf0"])
    log = log_of(program, 3, {"cpu": {"memory": 1e15, "float32": 1e12}})
    log.log.record(sized(program, sizes))
    row = only(opened(log.end()))
    assert (row.operations, row.dtype, row.bound) == (3 * operations, "float32", "arithmetic")
    assert row.least_ns == round(3 * operations / 1e12 * 1e9)


def test_a_small_product_is_limited_by_the_memory(opened: Open) -> None:
    program = Program().launch("extern_kernels.mm", ["a", "b"], ["buf0"])
    log = log_of(program, 1, {"cpu": {"memory": 1e9, "float32": 1e15}})
    log.log.record(sized(program, [[30, 1], [1, 50], [30, 50]]))
    row = only(opened(log.end()))
    assert (row.bound, row.least_ns) == ("memory", (30 + 50 + 1500) * 4)


def test_operations_follow_sizes_that_change(opened: Open) -> None:
    program = Program().launch("extern_kernels.mm", ["a", "b"], ["buf0"])
    log = log_of(program, 5)
    log.log.record(sized(program, [[3, 2], [2, 5], [3, 5]])).record(sized(program, [[9, 2], [2, 5], [9, 5]], call=3))
    assert only(opened(log.end())).operations == 2 * 2 * 5 * (3 * 3 + 2 * 9)


def test_a_lower_precision_of_float32_has_no_limit(opened: Open) -> None:
    program = Program().launch("extern_kernels.mm", ["a", "b"], ["buf0"])
    log = log_of(program, 1, precision="high")
    log.log.record(sized(program, [[3, 2], [2, 5], [3, 5]]))
    row = only(opened(log.end()))
    assert (row.operations, row.share, row.why_no_limit) == (60, None, limits_of.OTHER_PRECISION)


def test_the_time_on_the_host_says_nothing_of_a_gpu(opened: Open) -> None:
    program = Program().launch("triton_poi_fused_relu_0", ["primals_1"], ["buf0"], "triton")
    log = log_of(program, 1, gpus=[GPU])
    log.log.record(sized(program, [[1000], [1000]], device="cuda:0"))
    row = only(opened(log.log))
    assert (row.share, row.lost_ns) == (None, None)
    assert row.why_no_limit is not None
    assert row.why_no_limit.startswith("the time on the device was not measured")
    log.log.record(DeviceTimes([0], [0], [800], "events"))
    row = only(opened(log.end()))
    assert (row.is_of_device, row.least_ns, row.share, row.lost_ns) == (True, 400, 0.5, 400)


@pytest.mark.parametrize(
    ("limits", "gpus", "kernel", "kind", "dtype", "why"),
    [
        ({}, (), "cpp_fused_0", "cpp", "float32", limits_of.NOT_MEASURED),
        (MEASURED, (), "extern_kernels.convolution", "extern", "float32", limits_of.UNKNOWN_WORK),
        (MEASURED, (), "cpp_fused_gemm_0", "cpp", "float32", limits_of.UNKNOWN_WORK),
        (MEASURED, (), "extern_kernels.mm", "extern", "float64", limits_of.NO_RATE),
        (MEASURED, (GPU, "Other GPU"), "triton_poi_fused_0", "triton", "float32", limits_of.OTHER_GPUS),
    ],
)
def test_a_kernel_without_a_limit_says_why(
    opened: Open, limits: object, gpus: Sequence[str], kernel: str, kind: str, dtype: str, why: str
) -> None:
    program = Program().launch(kernel, ["a", "b"], ["buf0"], kind)  # type: ignore[arg-type]
    log = log_of(program, 1, limits, gpus)
    device = "cuda:0" if gpus else "cpu"
    log.log.record(sized(program, [[3, 2], [2, 5], [3, 5]], dtype=dtype, device=device))
    log.log.record(DeviceTimes([0], [0], [800], "events"))
    row = only(opened(log.end()))
    assert (row.share, row.lost_ns, row.why_no_limit) == (None, None, why)


def test_the_pages_show_what_is_lost_and_that_most_is_lost_first(opened: Open) -> None:
    program = Program().launch("cpp_fused_near_0", ["primals_1"], ["buf0"], "cpp")
    program.launch("cpp_fused_far_1", ["buf0"], ["buf1"], "cpp").launch("extern_kernels.sort", ["buf1"], ["buf2"])
    log = log_of(program, 1)
    for site, size in enumerate((20, 2, 2)):
        metas = [TensorMeta(n, "float32", [size], [1], "cpu", 0, 4096) for n in range(2)]
        log.log.record(Tensors(0, 0, site, metas))
    client = Client(opened(log.end()))
    rows = client.get("/limits.json").json()["kernels"]
    assert [row["kernel"] for row in rows] == ["cpp_fused_far_1", "cpp_fused_near_0", "extern_kernels.sort"]
    assert [row["lost_ns"] for row in rows] == [46, 10, None]
    page = client.get("/limits").text
    assert "56 ns" in page
    assert "80 %" in page
    assert limits_of.UNKNOWN_WORK in page
    assert client.get("/launches/0.json").json()["limit"]["share"] == 0.8
    assert "80 % reached" in client.get("/kernels/cpp_fused_near_0").text


def test_a_page_without_figures_names_the_command(opened: Open) -> None:
    log = log_of(Program().launch("cpp_fused_0", ["primals_1"], ["buf0"], "cpp"), 1, {})
    assert "stepscope measure" in Client(opened(log.end())).get("/limits").text
