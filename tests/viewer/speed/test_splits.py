"""The parts of steps: each is where the log puts it, and together they are the time of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.tracer.schema.constants import PRINTED_KEY
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import DataWait, StepMarks
from stepscope.viewer.speed.queries import splits
from stepscope.viewer.speed.queries.periods import Periods
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.queries.splits import step_split, step_splits
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda span: (span[0], sum(span))), max_size=8)


def training(steps: int, launch_ms: int = 1, key: str = "key{}", **of_run: Any) -> LogBuilder:
    """Steps of 10 ms: 2 ms of data, 1 ms of other code, calls of 3 and 2 ms with 1 ms between them, 1 ms after."""
    log = (
        LogBuilder()
        .record(run(guesses_steps=True, **of_run))
        .record(replace(graph(), wrapper_key=key.format(0)))
        .record(replace(graph(1, phase="backward", compile_id="0/0"), wrapper_key=key.format(1)))
    )
    for step in range(steps):
        begin = MONOTONIC_NS + step * 10 * MS
        log.record(DataWait(1, begin, 2 * MS, 0, "/src/train.py", 7))
        starts = [begin + 3 * MS, begin + 7 * MS]
        calls = Calls(
            [2 * step, 2 * step + 1], [0, 1], [0, 0], [step, step], [1, 1], [None, None], starts, [3 * MS, 2 * MS],
            [2, 1], ["ok", "ok"],
        )  # fmt: skip
        launched = [starts[0], starts[0] + MS, starts[1]]
        log.record(Launches(calls, [0, 1, 0], launched, [at + launch_ms * MS for at in launched]))
        log.record(StepMarks(["optimizer"], [0], ["SGD"], [1], [begin + 10 * MS]))
    return log.record(End("exit", MONOTONIC_NS + steps * 10 * MS))


def test_parts_are_where_the_log_puts_them(opened: Open) -> None:
    trace = opened(training(8))
    of_steps = step_splits(trace, 0)
    expected = {"kernels": 3, "host": 2, "between": 1, "after": 1, "data": 2, "outside": 1}
    for split in list(of_steps.values())[1:]:
        assert {part.kind: part.duration_ns / MS for part in split.parts} == expected
        assert split.verdict == "Kernels take 30 % of this step (3.00 ms of 10.0 ms)."
    assert all(sum(part.duration_ns for part in one.parts) == one.duration_ns for one in of_steps.values())
    (of_run,) = run_splits(trace)
    assert (of_run.steps, of_run.typical_ns) == (8, 10 * MS)


def test_printed_calls_whose_times_are_those_of_reading_have_no_parts(opened: Open) -> None:
    trace = opened(training(8, key=f"{PRINTED_KEY}{{}}"))
    assert (run_splits(trace), step_splits(trace, 0)) == ([], {})
    assert {part.kind for part in run_splits(opened(training(8)))[0].parts} >= {"kernels"}


def test_time_between_launches_is_the_recorders_too_if_it_reads_values(opened: Open) -> None:
    (of_run,) = run_splits(opened(training(8, level="values", launch_ms=0)))
    assert {part.kind: part.duration_ns // MS for part in of_run.parts if part.kind in ("host", "reading")} == {
        "reading": 5
    }
    assert of_run.verdict == (
        "Host work between the launches of compiled graphs, in which the recorder also reads values, takes 50 % of a"
        " step (5.00 ms of 10.0 ms)."
    )


def test_parts_add_up_although_launches_of_a_damaged_log_end_before_they_begin(opened: Open) -> None:
    for split in step_splits(opened(training(8, launch_ms=-9)), 0).values():
        assert sum(part.duration_ns for part in split.parts) == split.duration_ns


def test_the_split_of_one_step_of_a_long_log_is_that_of_all(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = opened(training(8))
    expected = step_splits(trace, 0)
    monkeypatch.setattr(splits, "MOST_DIVIDED", 7)
    assert [step_split(trace, 0, step) for step in range(8)] == [expected[step] for step in range(8)]
    assert step_split(trace, 0, 8) is None


def inside(spans: Sequence[tuple[int, int]], start: int, end: int) -> set[int]:
    return {at for first, last in spans for at in range(first, last)} & set(range(start, end))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SPANS, SPANS, st.integers(0, 80), st.integers(0, 80))
def test_periods_cover_what_their_spans_cover(
    spans: list[tuple[int, int]], others: list[tuple[int, int]], start: int, end: int
) -> None:
    assert Periods(spans).within(start, end) == len(inside(spans, start, end))
    left = Periods(spans).outside_of(Periods(others))
    assert left.within(start, end) == len(inside(spans, start, end) - inside(others, 0, 99))
