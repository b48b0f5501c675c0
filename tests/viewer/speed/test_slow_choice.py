"""A choice of the autotuner that is not the fastest is named if its launches are slow, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.launches import TensorMeta, Tensors
from stepscope.tracer.schema.tuning import Autotuned, MeasuredChoice, TunedInput
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.speed import slow_choice
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.kernels import kernel_detail
from stepscope.viewer.values.queries.tunings import tunings
from tests.logs.synthetic import LogBuilder
from tests.logs.timed_logs import run_of

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000
CHOICES = [MeasuredChoice("mm", "", MS), MeasuredChoice("cpp_gemm_0", "", 3 * MS), MeasuredChoice("broken", "", None)]
TUNED = Autotuned(0, "op0", "mm", [TunedInput("buf0", "float32", [8, 8], [8, 1])], False, True, CHOICES, 1)


def log_of(spent_ms: float, device: str = "cpu", **changes: Any) -> LogBuilder:
    """Return the log of a run whose product takes `spent_ms` of each step; the other kernel takes 1 ms."""
    log = run_of(lambda kernel, _: round(spent_ms * MS) if "mm" in kernel else MS, ["cpp_fused_mm_0", "cpp_fused_exp"])
    log.record(Tensors(0, 0, 0, [TensorMeta(0, "float32", [8, 8], [8, 1], device, 0, 256)]))
    return log.record(replace(TUNED, **changes))


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "slow_choice"]


def test_the_choice_and_the_fastest_one_are_named(opened: Open) -> None:
    (finding,) = found(opened(log_of(3)))
    assert finding.severity == "warning"
    assert finding.title.startswith(
        "The fastest choice that the autotuner measured would save 50 % of a step (2.00 ms of 4.00 ms)"
    )
    assert "cpp_gemm_0 is in use, which the autotuner measured at 3.00 ms" in finding.proof[0]
    assert "mm took 1.00 ms" in finding.proof[0]
    assert finding.kernel == "cpp_fused_mm_0"


def test_what_all_choices_take_longer_in_a_step_is_not_saved(opened: Open) -> None:
    (finding,) = found(opened(log_of(5)))
    assert "would save 33 % of a step (2.00 ms of 6.00 ms)" in finding.title


@pytest.mark.parametrize(
    "log",
    [
        log_of(1.2),
        log_of(9, chosen=0),
        log_of(3, snode="op7"),
        log_of(3, device="cuda:0"),
        log_of(3, choices=[replace(CHOICES[0], duration_ns=int(2.5 * MS)), CHOICES[1]]),
    ],
    ids=["its launches are fast", "a slow machine", "no launch", "no time on the device", "nearly as fast"],
)
def test_what_loses_no_time_is_not_named(opened: Open, log: LogBuilder) -> None:
    assert found(opened(log)) == []


def test_the_page_of_the_kernel_shows_the_choices_side_by_side(opened: Open) -> None:
    detail = kernel_detail(opened(log_of(3)), "cpp_fused_mm_0")
    assert detail is not None
    ((first, sites),) = [(group.first, group.sites) for group in detail.tunings]
    assert (sites, first.launches, first.launch_ns) == (1, 12, 3 * MS)
    assert [choice.kernel for choice in first.choices] == ["mm", "cpp_gemm_0", "broken"]
    assert first.choice.kernel == "cpp_gemm_0"


def test_a_kernel_that_computes_more_may_be_faster_than_its_choice(opened: Open) -> None:
    (tuning,) = tunings(opened(log_of(3)))
    assert slow_choice._is_candidate(tuning)
    assert not slow_choice._is_candidate(replace(tuning, is_alone=False))


def test_a_choice_that_the_log_lacks_is_not_shown(opened: Open) -> None:
    detail = kernel_detail(opened(log_of(3, chosen=7)), "cpp_fused_mm_0")
    assert detail is not None
    assert detail.tunings == []
