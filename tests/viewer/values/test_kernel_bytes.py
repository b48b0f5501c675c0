"""The time, the bytes and the bandwidth of kernels, from the sizes of their arguments at each launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stepscope.tracer.schema.launches import DeviceTimes, TensorMeta, Tensors
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.kernels import KernelRow, kernel_detail, kernel_rows
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import LAUNCH_NS, Program, ValueLog

Open = Callable[[LogBuilder], Trace]
MEAN_NS = LAUNCH_NS // 2


def tensors(program: Program, call: int, site: int, sizes: Sequence[Sequence[int]], **changes: object) -> Tensors:
    """Return tensors of float32 for the first arguments of a site."""
    metas = []
    for argument, size in enumerate(sizes):
        stride = [1] * len(size)
        fields = {"dtype": "float32", "size": list(size), "stride": stride, "device": "cpu", **changes}
        metas.append(TensorMeta(argument, fields["dtype"], fields["size"], fields["stride"], fields["device"], 0, 4096))  # type: ignore[arg-type]
    return Tensors(program.number, call, site, metas)


def only(trace: Trace) -> KernelRow:
    (row,) = kernel_rows(trace)
    detail = kernel_detail(trace, row.kernel)
    assert detail is not None
    assert detail.row.moved_bytes == row.moved_bytes
    return row


def test_inputs_and_outputs_count_once_and_what_is_both_twice(opened: Open) -> None:
    program = Program().launch("k", ["primals_1", "buf0"], ["buf0", "buf1"])
    log = ValueLog(program)
    for step in range(3):
        log.call(program, step)
    log.log.record(tensors(program, 0, 0, [[2, 8], [4], [8]]))
    row = only(opened(log.end()))
    per_launch = 4 * (16 + 2 * 4 + 8)
    assert (row.moved_bytes, row.mean_ns, row.share) == (3 * per_launch, MEAN_NS, 1.0)
    assert row.bytes_per_second == pytest.approx(per_launch * 1e9 / MEAN_NS)


def test_sizes_that_change_are_those_of_each_call(opened: Open) -> None:
    program = Program().launch("k", ["primals_1"], ["buf1"])
    log = ValueLog(program)
    for step in range(5):
        log.call(program, step)
    log.log.record(tensors(program, 0, 0, [[4], [4]])).record(tensors(program, 3, 0, [[100], [4]]))
    assert only(opened(log.end())).moved_bytes == 4 * (3 * 8 + 2 * 104)


def test_an_expanded_dimension_is_in_memory_once(opened: Open) -> None:
    program = Program().launch("k", ["primals_1"], [])
    log = ValueLog(program)
    log.call(program)
    log.log.record(tensors(program, 0, 0, [[64, 4]], stride=[0, 1]))
    assert only(opened(log.end())).moved_bytes == 16


def test_a_size_that_was_not_recorded_is_no_zero(opened: Open) -> None:
    program = Program().launch("k", ["primals_1"], ["buf1"])
    log = ValueLog(program)
    log.call(program)
    log.log.record(tensors(program, 0, 0, [[4]]))
    row = only(opened(log.end()))
    assert (row.moved_bytes, row.bytes_per_second) == (None, None)
    assert row.why_no_bandwidth == "the size of an argument was not recorded"


def test_the_host_time_of_a_device_says_nothing_of_its_bandwidth(opened: Open) -> None:
    program = Program().launch("k", ["primals_1"], ["buf1"], "triton")
    log = ValueLog(program)
    log.call(program)
    log.log.record(tensors(program, 0, 0, [[4], [4]], device="cuda:0"))
    row = only(opened(log.log))
    assert (row.moved_bytes, row.bytes_per_second) == (32, None)
    assert row.why_no_bandwidth is not None
    assert row.why_no_bandwidth.startswith("the time on the device was not measured")
    log.log.record(DeviceTimes([0], [0], [8], "events"))
    row = only(opened(log.end()))
    assert (row.mean_ns, row.bytes_per_second) == (8.0, 4e9)
