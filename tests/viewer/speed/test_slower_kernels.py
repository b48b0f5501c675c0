"""Kernels that become slower within a run are named with the step; noise, peaks and a busy machine are not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.speed.slower_kernels import (
    _Change,
    _may_be_machine,
    _proof,
    change_point,
    is_apart,
)
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.kernel_courses import SiteChange
from stepscope.viewer.speed.rows import StepSplit
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000


def log_of(kernels_ms: Sequence[float], host_ms: Sequence[float] | None = None) -> LogBuilder:
    """Steps of one call with two launches: one of a millisecond, and one of the given time after host work."""
    log = LogBuilder().record(run(guesses_steps=True)).record(graph())
    at = MONOTONIC_NS
    for step, lasts in enumerate(kernels_ms):
        host = round((host_ms[step] if host_ms else 0.5) * MS)
        starts = [at, at + MS + host]
        ends = [at + MS, starts[1] + round(lasts * MS)]
        calls = Calls([step], [0], [0], [step], [1], [None], [at], [ends[1] - at], [2], ["ok"])
        log.record(Launches(calls, [0, 1], starts, ends))
        at = ends[1] + MS
    return log.record(End("exit", at))


def noisy(median: float, count: int, seed: int) -> list[float]:
    """Return times with preemptions: a quarter of them take up to three times as long."""
    chance = random.Random(seed)
    return [median * chance.choice((1.0, 1.0, 1.05, 1 + 2 * chance.random())) for _ in range(count)]


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "slower_kernels"]


def test_the_step_and_the_kernel_are_named(opened: Open) -> None:
    trace = opened(log_of([*noisy(4, 20, 0), *noisy(12, 20, 1)]))
    (finding,) = found(trace)
    assert finding.step == 20
    assert finding.title.startswith("From step 20 on, kernels take 2.")
    assert finding.severity == "warning"
    assert finding.evidence["earlier_steps"] == 19, "the first step may warm up"
    assert "The other kernel of these steps did not become slower" in finding.proof[1]
    assert finding.launch == 2 * 20 + 1


@pytest.mark.parametrize("seed", range(6))
def test_noise_is_no_change(opened: Open, seed: int) -> None:
    assert found(opened(log_of(noisy(8, 40, seed)))) == []


def test_steps_that_become_quick_again_are_no_change(opened: Open) -> None:
    assert found(opened(log_of([*noisy(4, 15, 0), *noisy(12, 12, 1), *noisy(4, 15, 2)]))) == []


def test_a_machine_that_becomes_busy_slows_the_host_as_well(opened: Open) -> None:
    times = [*noisy(4, 20, 0), *noisy(12, 20, 1)]
    assert found(opened(log_of(times, [0.5] * 20 + [1.5] * 20))) == []


def test_slower_host_work_shows_that_the_machine_may_be_busy(opened: Open) -> None:
    times = [*noisy(4, 20, 0), *noisy(24, 20, 1)]
    (finding,) = found(opened(log_of(times, [0.5] * 20 + [0.9] * 20)))
    assert finding.severity == "info"
    assert finding.proof[1].endswith(" times as long, so that the machine may have been busy.")


def test_a_few_late_steps_prove_nothing(opened: Open) -> None:
    assert found(opened(log_of([4.0] * 30 + [12.0] * 7))) == []


def test_the_change_is_where_the_times_divide_best() -> None:
    assert change_point([4] * 10 + [12] * 9) == 10
    assert change_point([4, 5] * 6 + [9, 8] * 10) == 12


def test_times_are_apart_if_their_ranks_are() -> None:
    assert is_apart([1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16])
    assert not is_apart([5] * 20, [5] * 20)
    assert not is_apart([1, 2, 3, 4, 5, 6, 7, 16], [8, 9, 10, 11, 12, 13, 14, 15])


def test_several_kernels_that_become_slower_have_no_cause_in_one_of_them() -> None:
    splits = [StepSplit(log=0, step=step, start_ns=0, end_ns=MS, parts=[]) for step in range(2)]
    change = _Change(splits[:1], splits[1:], 3 * MS, 7 * MS, None)
    sites = [SiteChange(0, name, None, MS, late * MS, 0) for name, late in (("a", 3), ("b", 3), ("c", 1), ("d", 1))]
    assert _proof(change, sites) == ["Of the 4 kernels of these steps, 2 became slower."]
    assert not _may_be_machine(change, sites)
    assert _may_be_machine(change, sites[:2])
    assert _may_be_machine(change, sites[:3])
    assert _may_be_machine(change._replace(host_factor=1.6), sites)
    (nearly_all,) = _proof(change, [*sites[:2] * 3, sites[2]])
    assert nearly_all.startswith("6 of the 7 kernels became slower, which may be caused by a lower clock rate")
    (alone,) = _proof(change, [sites[0], sites[2]])
    assert alone.startswith("The other kernel of these steps did not become slower, so the cause lies in")
