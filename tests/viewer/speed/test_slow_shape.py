"""A kernel that takes longer for a size than for a larger one is named with both sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from stepscope.tracer.schema.graphs import LaunchKind, LaunchSite
from stepscope.tracer.schema.launches import Calls, Launches, SameTensors, TensorMeta, Tensors
from stepscope.tracer.schema.scalars import Assignment, CallSymbols
from stepscope.tracer.schema.steps import Steps
from stepscope.tracer.schema.tuning import Autotuned, MeasuredChoice, TunedInput
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, argument, graph, run

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000
FAST, SLOW = (4096, 1.0), (4095, 4.0)


def log_of(launches: Sequence[tuple[int, float]], kind: LaunchKind = "extern", rows: int = 1) -> LogBuilder:
    """Return the log of steps with a launch of 2 ms, and one that has a size and a time (ms) in each step; of sizes
    below 4096 it reads `rows` times as much."""
    arguments = [argument("arg0_1", "in"), argument("buf0", "out")]
    sites = [
        LaunchSite(0, "call", 20, "torch.ops.aten._fft_r2c.default", kind, arguments, [], snodes=["op0"]),
        LaunchSite(1, "call", 22, "cpp_fused_sum_0", "cpp", arguments, []),
    ]
    log = LogBuilder().record(run()).record(graph(sites=sites, memory=[], functions=["call"], symbols=["s0"]))
    sizes, at = [size for size, _ in launches], MONOTONIC_NS + MS
    for step, (size, spent_ms) in enumerate(launches):
        if size in sizes[:step]:
            log.record(SameTensors(0, step, 0, 0, sizes.index(size)))
        else:
            shape = [rows if size < 4096 else 1, size]
            metas = [TensorMeta(each, "float32", shape, [size, 1], "cpu", 0, 4 * size) for each in range(2)]
            log.record(Tensors(0, step, 0, metas)).record(Tensors(0, step, 1, metas))
        between, end = at + round(spent_ms * MS), at + round((spent_ms + 2) * MS)
        log.record(
            Launches(
                Calls([step], [0], [0], [step], [1], [None], [at], [end - at], [2], ["ok"]),
                [0, 1], [at, between], [between, end],
            )
        )  # fmt: skip
        log.record(Steps([step], ["inference"], ["call"], [at], [end]))
        at = end + 1_000
    given = [Assignment([0], [0], [size]) for size in sizes]
    return log.record(CallSymbols(list(range(len(sizes))), list(range(len(sizes))), given))


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "slow_shape"]


def test_both_sizes_are_named(opened: Open) -> None:
    (finding,) = found(opened(log_of([FAST, SLOW] * 10)))
    assert finding.severity == "warning"
    assert finding.title == (
        "torch.ops.aten._fft_r2c.default takes 4.0 times as long for s0 = 4,095 as for s0 = 4,096: 4.00 ms instead of"
        " 1.00 ms per launch"
    )
    assert finding.evidence["share"] == pytest.approx(1.5 / 4.5, abs=0.01)
    assert (finding.evidence["slow_sizes"], finding.evidence["launches"]) == ({"s0": 4095}, 10)


def test_several_slow_sizes_of_a_kernel_are_one_finding(opened: Open) -> None:
    (finding,) = found(opened(log_of([FAST, SLOW, (2047, 3.0)] * 10)))
    assert "The kernel is slow at 1 other size, too." in finding.proof


def test_the_sizes_that_the_autotuner_measured_are_told(opened: Open) -> None:
    choices = [MeasuredChoice("triton_mm_7", "", MS)]
    tuned = Autotuned(0, "op0", "mm", [TunedInput("arg0_1", "float32", [64, 8], [8, 1])], True, True, choices, 0)
    (finding,) = found(opened(log_of([FAST, SLOW] * 10).record(tuned)))
    assert "Inductor's autotuner chose triton_mm_7 by measurements with [64, 8]." in finding.proof


def noisy(seed: int) -> list[tuple[int, float]]:
    """Sizes in random order, with times that grow with them and vary by half."""
    chance = Random(seed)
    return [(size, size / 1024 * (1 + 0.5 * chance.random())) for size in chance.choices((2048, 2560, 4096), k=60)]


@pytest.mark.parametrize(
    "log",
    [
        log_of([FAST, (8192, 8.0)] * 10),
        log_of([FAST] * 10 + [SLOW] * 10),
        log_of([FAST] * 30 + [SLOW, FAST, SLOW, FAST, SLOW]),
        log_of([FAST, SLOW] * 10, rows=2),
        log_of([FAST, SLOW] * 10, kind="user_triton"),
        log_of([FAST, (4095, 1.3)] * 10),
        log_of([FAST, (4095, 1.0), (4095, 4.0)] * 10),
        *(log_of(noisy(seed)) for seed in range(3)),
    ],
    ids=[
        "larger",
        "a busy machine",
        "few",
        "more bytes",
        "of the user",
        "little",
        "not always",
        "noise",
        "noise",
        "noise",
    ],
)
def test_what_proves_nothing_is_not_named(opened: Open, log: LogBuilder) -> None:
    assert found(opened(log)) == []
