"""Many short launches: the finding tells their cost in a usual step, and the line that calls them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.tracer.schema.launches import CallGaps, TensorMeta, Tensors
from stepscope.tracer.schema.steps import CallSite
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.timed_logs import run_of

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
KERNELS = [f"cpp_fused_add_{number}" for number in range(200)]


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "host_bound"]


def test_the_cost_is_that_of_the_median_step(opened: Open) -> None:
    """In every third step some launches take longer, as they do beside other programs."""
    log = run_of(lambda kernel, step: 3_900 if step % 3 == 0 and kernel[-1] < "4" else 2_000, KERNELS, 16)
    log.record(CallSite(0, "/src/rnn.py", 7, "main", "hidden = cell(x[t], hidden)"))
    (finding,) = found(opened(log))
    assert finding.title.endswith(": 200 launches take 2.00 us each")
    assert finding.source is not None
    assert finding.source.line == 7


def test_a_launch_that_takes_longer_than_usual_is_a_part_of_the_cost(opened: Open) -> None:
    """In each step, ten launches take 12 us, other ones from step to step."""
    log = run_of(lambda kernel, step: 12_000 if int(kernel[14:]) % 20 == step else 2_000, KERNELS, 16)
    (finding,) = found(opened(log))
    assert ": 200 launches take 2.50 us each" in finding.title


def test_the_time_of_the_recorder_between_calls_is_no_part_of_the_step(opened: Open) -> None:
    """A step begins with the end of the one before, 1 us before its call."""
    log = run_of(lambda kernel, step: 2_000, KERNELS, 16)
    log.record(CallGaps(list(range(1, 16)), list(range(15)), [1_000] * 15, [1_000] * 15))
    (finding,) = found(opened(log))
    assert finding.title.startswith("Calling kernels takes 100 % of a step (400 us of 400 us)")


def test_launches_that_compute_are_no_cost_of_calling(opened: Open) -> None:
    assert found(opened(run_of(lambda kernel, step: 6_000, KERNELS, 16))) == []


@pytest.mark.parametrize(("rows", "told"), [(64, 1), (1_024, 0)])
def test_a_kernel_that_moves_little_may_take_longer_on_a_slow_machine(opened: Open, rows: int, told: int) -> None:
    log = run_of(lambda kernel, step: 9_000, KERNELS, 16)
    for site in range(len(KERNELS)):
        sizes = [TensorMeta(n, "float32", [rows, 4], [4, 1], "cpu", 0, 16 * rows) for n in range(2)]
        log.record(Tensors(0, 0, site, sizes))
    assert len(found(opened(log))) == told
