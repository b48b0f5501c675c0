"""Broken values: what is wrong is counted, what is right is kept, nothing raises."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.tracer.schema.launches import DeviceTimes
from stepscope.tracer.schema.record import to_payload
from stepscope.tracer.schema.statistics import Values
from stepscope.tracer.schema.values import SavedTensor, ValueLayout
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.overview.queries.damage import problem_counts, problems
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.heatmap import heat_map
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import FINE, NAN, Program, ValueLog, attention, layout_of, values_of

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
PROGRAM = attention()
ROWS = [FINE] * len(PROGRAM.layout)
SLOW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def one_call() -> ValueLog:
    """One good call, whose layout is 0; call 1 has launches and no values yet."""
    log = ValueLog(PROGRAM)
    log.call(PROGRAM, 0, buf1=NAN)
    return log


def values(**changes: Any) -> dict[str, Any]:
    return to_payload(values_of([1], [0], ROWS)) | changes


def with_second(payload: dict[str, Any] | Values) -> LogBuilder:
    """A log whose second call has these values."""
    log = one_call()
    before = log.log.data
    log.call(PROGRAM, 1)
    launches = log.log.data[len(before) :].split(b"\nV")[0] + b"\n"
    body = payload if isinstance(payload, dict) else to_payload(payload)
    return LogBuilder().raw(before + launches).artifact("stepscope_values", json.dumps(body).encode())


def count(trace: Trace) -> int | None:
    return overview(trace).counts.value_rows


def test_the_second_call_is_read_when_nothing_is_wrong(opened: Open) -> None:
    trace = opened(with_second(values()))
    assert (problem_counts(trace), count(trace)) == ({}, 12)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"min": [0.0]}, "broken_payload"),
        ({"mean": [0.0] * 7}, "broken_payload"),
        ({"std": ["1"] * 6}, "broken_payload"),
        ({"max": [True] * 6}, "broken_payload"),
        ({"layout": []}, "broken_payload"),
        ({"nan": {"row": [6], "value": [1]}}, "broken_payload"),
        ({"nan": {"row": [-1], "value": [1]}}, "broken_payload"),
        ({"nan": {"row": [0, 1], "value": [1]}}, "broken_payload"),
        ({"zero": {"row": [2**70], "value": [1]}}, "broken_payload"),
        ({"zero": None}, "broken_payload"),
        ({"first_bad": {"row": [99], "value": [0]}}, "broken_payload"),
        ({"exact": {"row": [0], "min": [], "max": []}}, "broken_payload"),
        ({"exact": {"row": [7], "min": [1], "max": [1]}}, "broken_payload"),
        ({"layout": [7]}, "unknown_layout"),
        ({"call": [77]}, "unknown_launch"),
        ({"call": [0]}, "broken_values"),
        ({name: [] for name in ("min", "max", "mean", "std")}, "broken_values"),
        ({"call": [1, 1], "layout": [0, 0]}, "broken_values"),
    ],
)
def test_a_broken_batch_costs_itself(opened: Open, changes: dict[str, Any], reason: str) -> None:
    trace = opened(with_second(values(**changes)))
    assert problem_counts(trace) == {reason: 1}
    assert count(trace) == 6
    (problem,) = problems(trace)
    assert problem.line
    assert problem.byte


@pytest.mark.parametrize(
    "changes",
    [
        {"nan": {"row": [0], "value": [65]}},
        {"nan": {"row": [0], "value": [-1]}},
        {"first_bad": {"row": [0], "value": [64]}},
    ],
)
def test_counts_that_cannot_be_are_unknown(opened: Open, changes: dict[str, Any]) -> None:
    trace = opened(with_second(values(**changes)))
    assert problem_counts(trace) == {"absurd_value": 1}
    detail = launch_detail(trace, 3)
    assert detail is not None
    (row,) = detail.values[0].before
    assert (row.nan, row.min, row.health) == (None, None, "not_recorded")
    assert row.skipped == "its counts are impossible"
    assert count(trace) == 12


def test_exact_numbers_that_are_none(opened: Open) -> None:
    exact = {"row": [0, 1, 2], "min": ["x", None, "9" * 400], "max": [[], {}, "nan"]}
    trace = opened(with_second(values(exact=exact)))
    detail = launch_detail(trace, 3)
    assert detail is not None
    assert detail.values[0].before[0].min == -1.0
    assert count(trace) == 12


def test_values_of_a_call_twice_keep_the_first(opened: Open) -> None:
    log = one_call()
    log.log.record(values_of([0], [0], ROWS))
    trace = opened(log.end())
    assert problem_counts(trace) == {"broken_values": 1}
    assert [finding.kind for finding in all_findings(trace)] == ["nonfinite"]


def test_a_layout_that_comes_late_is_still_used(opened: Open) -> None:
    log = ValueLog(PROGRAM)
    log.call(PROGRAM, 0)
    start = log.log.data.index(b'"stepscope_value_layout"')
    first = log.log.data.rindex(b"\nV", 0, start) + 1
    last = log.log.data.index(b"\nV", start) + 1
    data = log.log.data[:first] + log.log.data[last:] + log.log.data[first:last]
    trace = opened(data)
    assert problem_counts(trace) == {"unknown_layout": 1}
    assert count(trace) == 6


def test_a_layout_that_is_there_twice(opened: Open) -> None:
    log = one_call()
    log.log.record(layout_of(PROGRAM, ROWS)).record(layout_of(PROGRAM, [NAN] * 3 + [FINE] * 3))
    other = layout_of(PROGRAM, [FINE] * 6)
    log.log.record(ValueLayout(**{**to_payload(other), "numel": [1] * 6}))
    trace = opened(log.end())
    assert problem_counts(trace) == {"broken_values": 1}
    assert count(trace) == 6


def test_the_layout_of_another_graph(opened: Open) -> None:
    other = Program(1).launch("a", ["x"], ["y"])
    log = ValueLog(PROGRAM, other)
    log.call(PROGRAM)
    log.call(other)
    log.log.record(values_of([1], [0], ROWS))
    assert problem_counts(opened(log.end())) == {"broken_values": 1}
    log = ValueLog(PROGRAM, other)
    log.call(PROGRAM)
    data = log.log.data.replace(b'"layout":[0]', b'"layout":[1]').replace(
        b'"layout":0,"graph":0', b'"layout":1,"graph":1'
    )
    data = data.replace(b'"has_payload"', b'"had_payload"')
    assert problem_counts(opened(data))["broken_values"] == 1


def test_layouts_whose_columns_do_not_fit(opened: Open) -> None:
    log = one_call()
    log.log.artifact(
        "stepscope_value_layout", json.dumps({**to_payload(layout_of(PROGRAM, ROWS)), "site": [1]}).encode()
    )
    log.log.record(DeviceTimes([0], [], [1], "events"))
    assert problem_counts(opened(log.end())) == {"broken_payload": 2}


def test_rows_of_sites_that_did_not_run(opened: Open) -> None:
    log = one_call()
    layout = to_payload(layout_of(PROGRAM, ROWS, 1)) | {
        "site": [0, 0, 0, 1, 99, -1],
        "argument": [9, 2**52, -5, 1, 0, 0],
    }
    log.log.record(ValueLayout(**layout))
    before = log.calls
    log.call(PROGRAM, 1)
    log.log.data = log.log.data.replace(b'"call":[%d],"layout":[0]' % before, b'"call":[%d],"layout":[1]' % before)
    log.log.data = log.log.data.replace(b'"has_payload"', b'"had_payload"')
    trace = opened(log.end())
    assert problem_counts(trace)["unknown_launch"] == 1
    assert count(trace) == 10
    assert summary(trace)
    assert launch_detail(trace, 3) is not None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
numbers = st.lists(st.none() | st.floats() | st.integers(-(2**70), 2**70), max_size=7)
whole = st.lists(st.integers(-3, 9) | st.integers(-(2**63), 2**63 - 1), max_size=7)
sparse = st.fixed_dictionaries({"row": whole, "value": whole})
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "call": whole, "layout": whole, "min": numbers, "max": numbers, "mean": numbers, "std": numbers, "nan": sparse,
    "positive_infinity": sparse, "zero": sparse, "first_bad": sparse,
    "exact": st.fixed_dictionaries({"row": whole, "min": st.lists(anything, max_size=7), "max": numbers}),
    "site": whole, "argument": whole, "numel": whole, "looked_at": whole, "item": whole, "graph": st.integers(),
    "moment": st.lists(st.text(max_size=6), max_size=7), "dtype": st.lists(st.text(max_size=9), max_size=7),
    "part": st.lists(st.none() | st.text(max_size=3), max_size=7), "launch": whole, "duration_ns": whole,
    "file": st.text(max_size=9), "size": whole,
}  # fmt: skip
TEMPLATES = {
    "stepscope_values": values(),
    "stepscope_value_layout": to_payload(layout_of(PROGRAM, ROWS)),
    "stepscope_device_times": to_payload(DeviceTimes([0, 1], [1, 2], [5, 6], "events")),
    "stepscope_saved_tensor": to_payload(SavedTensor(0, 1, 1, None, "after", "a.pt", "float32", [8], 32, "")),
}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(TEMPLATES)))
    payload = dict(TEMPLATES[name])
    for key in draw(st.lists(st.sampled_from(sorted(payload)), max_size=3)):
        payload[key] = draw(FIELDS.get(key, anything) | anything)
    return name, payload


@SLOW
@given(st.lists(damaged(), min_size=1, max_size=3), st.booleans())
def test_any_damage_of_values(records: list[tuple[str, dict[str, Any]]], before: bool) -> None:
    broken = LogBuilder()
    for name, payload in records:
        broken.artifact(name, json.dumps(payload).encode())
    log = ValueLog(PROGRAM)
    if before:
        log.log.raw(broken.data)
    log.call(PROGRAM, 0, buf1=NAN)
    log.call(PROGRAM, 1)
    if not before:
        log.log.raw(broken.data)
    with tempfile.TemporaryDirectory() as folder, suppress(StepscopeError):
        path = Path(folder, "x.log")
        path.write_bytes(log.end().data)
        with open_trace(path) as trace:
            assert overview(trace).counts.launches == 6
            json.dumps(summary(trace))
            assert summary_text(trace)
            heat_map(trace, 0)
            for launch in range(6):
                assert launch_detail(trace, launch) is not None
            if not before:
                assert (count(trace) or 0) >= 12


def in_parts(trace_of: Open, *order: int) -> Trace:
    """A log whose second call has its rows in records of two rows each, written in this order."""
    log = one_call()
    log.call(PROGRAM, 1)
    whole = to_payload(layout_of(PROGRAM, ROWS))
    data = log.log.data.rpartition(b'"stepscope_values"')[0].rpartition(b"\nV")[0] + b"\n"
    parts = LogBuilder().raw(data)
    for number in order:
        rows = slice(2 * number, 2 * number + 2)
        columns = {name: value[rows] for name, value in whole.items() if isinstance(value, list)}
        part = ValueLayout(**{**whole, **columns, "layout": 10 + number, "first": 2 * number})
        parts.record(part).record(values_of([1], [10 + number], ROWS[rows]))
    return trace_of(parts)


def test_the_values_of_a_call_may_come_in_parts(opened: Open) -> None:
    trace = in_parts(opened, 0, 1, 2)
    assert (problem_counts(trace), count(trace)) == ({}, 12)
    whole = [launch_detail(trace, launch) for launch in range(2 * len(PROGRAM.sites))]
    rows = [[(v.argument, len(v.before), len(v.after)) for v in one.values] for one in whole if one is not None]
    assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]


def test_a_part_that_is_lost_or_there_twice(opened: Open) -> None:
    trace = in_parts(opened, 0, 2)
    assert (problem_counts(trace), count(trace)) == ({}, 10)
    trace = in_parts(opened, 0, 1, 1)
    assert (problem_counts(trace), count(trace)) == ({"broken_values": 1}, 10)
