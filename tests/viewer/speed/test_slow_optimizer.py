"""Optimizers that take much of each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import OptimizerStep, StepMarks
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, argument, graph, run

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000


def stepping(
    optimizer_ms: int, is_fused: bool | None = False, device: str = "cpu", other: tuple[int, bool] | None = None
) -> LogBuilder:
    """Ten steps of 10 ms, each with a matrix product of 4 ms, then a step of Adam and one of SGD that lasts `other`
    (ms), which is fused or not."""
    site = LaunchSite(0, "call", 20, "extern_kernels.mm", "extern", [argument("buf0", "out")], [])
    log = LogBuilder().record(run(guesses_steps=True)).record(graph(sites=[site], memory=[], functions=["call"]))
    log.record(Tensors(0, 0, 0, [TensorMeta(0, "float32", [8, 8], [8, 1], device, 0, 256)]))
    for step in range(10):
        start = MONOTONIC_NS + step * 10 * MS
        calls = Calls([step], [0], [0], [step], [1], [None], [start], [4 * MS], [1], ["ok"])
        log.record(Launches(calls, [0], [start], [start + 4 * MS - 1000]))
        log.record(OptimizerStep(1, start + 4 * MS, optimizer_ms * MS, "Adam", is_fused, "/src/train.py", 12))
        if other is not None:
            begin = start + (4 + optimizer_ms) * MS
            log.record(OptimizerStep(1, begin, other[0] * MS, "SGD", other[1], "/src/train.py", 13))
        log.record(StepMarks(["optimizer"], [0], ["Adam"], [1], [start + 10 * MS]))
    return log.record(End("exit", MONOTONIC_NS + 100 * MS))


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "slow_optimizer"]


@pytest.mark.parametrize(("spent_ms", "severity"), [(3, "info"), (5, "warning")])
def test_an_optimizer_that_takes_much_of_a_step_is_named(opened: Open, spent_ms: int, severity: str) -> None:
    (finding,) = found(opened(stepping(spent_ms)))
    assert (finding.severity, finding.proof) == (
        severity,
        ["Adam(..., fused=True) updates the parameters in one kernel."],
    )
    assert finding.title == f"The optimizer Adam takes {10 * spent_ms} % of a step ({spent_ms}.00 ms of 10.0 ms)"
    assert finding.source is not None
    assert (finding.source.file, finding.source.line) == ("/src/train.py", 12)


def test_an_optimizer_without_a_fused_form_can_be_compiled(opened: Open) -> None:
    (finding,) = found(opened(stepping(3, None)))
    assert finding.proof == ["torch.compile(optimizer.step) computes the updates in few kernels."]


@pytest.mark.parametrize("log", [stepping(2), stepping(5, True), stepping(5, False, "cuda:0")])
def test_a_quick_or_fused_optimizer_and_one_on_a_gpu_are_not_named(opened: Open, log: LogBuilder) -> None:
    assert found(opened(log)) == []


@pytest.mark.parametrize("other", [(2, False), (3, True)])
def test_the_time_of_another_optimizer_does_not_count(opened: Open, other: tuple[int, bool]) -> None:
    (finding,) = found(opened(stepping(3, other=other)))
    assert finding.title == "The optimizer Adam takes 30 % of a step (3.00 ms of 10.0 ms)"
    assert found(opened(stepping(2, other=other))) == []
