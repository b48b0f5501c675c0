"""Learning rates that were almost zero for many steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.parameters import LearningRate
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
Scheduler = tuple[str, str, int] | tuple[()]


def with_rates(
    rates: Sequence[float],
    lines: Sequence[int] = (9,),
    steps: int = 40,
    first_ms: float = 1_000,
    step_ms: int = 10,
    scheduler: Scheduler = (),
) -> LogBuilder:
    """Training steps, of which each has one of the rates, until there are none. The rates are recorded before the first
    step, because two records are a millisecond apart."""
    start, step_ns = MONOTONIC_NS + int(first_ms * 1e6), step_ms * 1_000_000
    log = LogBuilder().record(run(guesses_steps=True)).record(graph())
    for step in range(steps):
        for line in lines if step < len(rates) else ():
            before, by = (rates[step - 1], scheduler) if step else (None, ())
            log.record(LearningRate("SGD", rates[step], before, "/src/train.py", line, None, *by))
        begin = start + step * step_ns
        row = Calls([step], [0], [0], [step], [1], [None], [begin], [step_ns // 2], [1], ["ok"])
        log.record(Launches(row, [0], [begin], [begin + step_ns // 2]))
        log.record(Steps([step], ["train"], ["optimizer"], [begin], [begin + step_ns]))
    return log.record(End("exit", start + steps * step_ns))


def vanished(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "vanished_rate"]


def test_a_learning_rate_that_falls_to_almost_nothing(opened: Open) -> None:
    (finding,) = vanished(opened(with_rates([0.0, 0.1, 1e-5, 1e-9, 1e-13])))
    assert (finding.severity, finding.source and finding.source.line) == ("warning", 9)
    assert finding.title.startswith("The learning rate of SGD (train.py:9) fell from 0.1 to 1e-13, so that the last ")


@pytest.mark.parametrize("rates", [[0.1, 1e-9, 1e-12], [*[0.0] * 12, *[0.1] * 28]])
def test_the_scheduler_that_changed_the_rate_is_named(opened: Open, rates: list[float]) -> None:
    build = with_rates if rates[0] else in_time
    (finding,) = vanished(opened(build(rates, scheduler=("StepLR", "/src/train.py", 11))))
    assert (finding.source and finding.source.line) == 11
    assert finding.proof[0] == "The scheduler StepLR (train.py:11) has changed the rate."


def test_a_learning_rate_that_falls_to_zero(opened: Open) -> None:
    (finding,) = vanished(opened(with_rates([0.1, 1e-9, 0.0])))
    assert " fell from 0.1 to 0, so that the last " in finding.title
    assert finding.title.endswith(" of 40 training steps change no parameter")


def in_time(rates: Sequence[float], scheduler: Scheduler = ()) -> LogBuilder:
    """Training steps, in the middle of which their rates are recorded."""
    return with_rates(rates, steps=len(rates), first_ms=2.5, step_ms=3, scheduler=scheduler)


def test_a_learning_rate_that_is_zero_in_many_steps_before_it_rises(opened: Open) -> None:
    (finding,) = vanished(opened(in_time([*[0.0] * 12, *[0.1] * 28])))
    assert (finding.severity, finding.source and finding.source.line) == ("warning", 9)
    assert finding.title == (
        "The learning rate of SGD (train.py:9) was 0 at first, so that the first 12 of 40 training steps change no"
        " parameter"
    )
    assert "stepped after each epoch" in finding.proof[0]


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [1, 9, 40])
def test_a_learning_rate_that_soon_rises_or_is_always_zero_has_no_finding(opened: Open, zeros: int) -> None:
    assert vanished(opened(in_time([*[0.0] * zeros, *[0.1] * (40 - zeros)]))) == []


@pytest.mark.slow
@pytest.mark.parametrize(("second", "in_step"), [(0.0, 0), (0.2, 20)])
def test_the_first_rate_of_another_optimizer_is_neither_a_fall_nor_a_rise(
    opened: Open, second: float, in_step: int
) -> None:
    log = with_rates([0.1] if in_step == 0 else [])
    log.record(LearningRate("SGD", second, None, "/src/train.py", 9))
    assert vanished(opened(log)) == []


@pytest.mark.slow
@pytest.mark.parametrize("rates", [[0.1, 1e-5, 1e-8], [0.1, 1e-9, 0.1], [1e-10, 1e-5, 0.1]], ids=str)
def test_rates_that_stay_high_or_rise_again_have_no_finding(opened: Open, rates: list[float]) -> None:
    assert vanished(opened(with_rates(rates))) == []


@pytest.mark.slow
def test_a_rate_that_falls_in_the_end_or_of_several_optimizers_has_no_finding(opened: Open) -> None:
    fallen = [0.1, 1e-9, 1e-13]
    assert vanished(opened(with_rates(fallen, steps=9))) == []
    assert vanished(opened(with_rates(fallen, lines=(9, 12)))) == []
