"""The operators that PyTorch's profiler saw stand at the launch in which they ran, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.tracer.schema.profiles import ProfiledOperator
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder
from tests.logs.value_logs import LAUNCH_NS, Program, ValueLog
from tests.viewer.client import Client

FIRST = MONOTONIC_NS + 1_000_000 + LAUNCH_NS
"""Start of the first launch; each lasts half of `LAUNCH_NS`."""


def test_operators_are_joined_by_thread_and_time(opened: Callable[[LogBuilder], Trace]) -> None:
    program = Program().launch("extern_kernels.addmm", ["a"], ["buf0"]).launch("b", ["buf0"], ["buf1"])
    log = ValueLog(program)
    log.call(program)
    for thread, start, duration, name, depth in (
        (1, -1, 50, "aten::addmm", 1),  # the clocks are aligned to some microseconds only
        (1, 10, 20, "aten::copy_", 2),
        (2, 10, 20, "aten::other_thread", 0),
        (1, 60, 10, "aten::between", 0),
        (1, LAUNCH_NS + 5, 10, "<script>::x", 0),
    ):
        log.log.record(ProfiledOperator(thread, FIRST + start, duration, name, depth))
    client = Client(opened(log.end()))
    first, second = (client.get(f"/launches/{launch}.json").json()["operators"] for launch in (0, 1))
    assert first == [
        {"name": "aten::addmm", "start_ns": -1, "duration_ns": 50, "depth": 0},
        {"name": "aten::copy_", "start_ns": 10, "duration_ns": 20, "depth": 1},
    ]
    assert [one["name"] for one in second] == ["<script>::x"]


def test_a_step_that_was_not_profiled_has_no_operators(opened: Callable[[LogBuilder], Trace]) -> None:
    program = Program().launch("a", ["x"], ["buf0"])
    log = ValueLog(program)
    log.call(program)
    assert Client(opened(log.end())).get("/launches/0.json").json()["operators"] == []
