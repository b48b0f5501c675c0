"""Broken records about memory: what is wrong is counted, what is right is kept, nothing raises."""

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

from stepscope.tracer.schema.record import to_payload
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings import all_findings
from stepscope.viewer.memory.queries.alive import alive_in_call
from stepscope.viewer.memory.queries.compare import compare_memory
from stepscope.viewer.memory.queries.graph import graph_memory
from stepscope.viewer.memory.queries.graphs import lifetime_events
from stepscope.viewer.memory.queries.growth import left_behind
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.memory.queries.nodes import node_memory
from stepscope.viewer.memory.queries.recompute import recompute_detail
from stepscope.viewer.memory.queries.run import live_curve
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import (
    backward_layout,
    forward_layout,
    forward_schedule,
    lifetimes,
    start_of,
    training,
)
from tests.logs.memory_records import growth, mismatch, recompute, step_mismatch
from tests.logs.synthetic import LogBuilder

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EVENTS = 15
"""Of one step."""


def with_record(name: str, payload: Any, steps: int = 1) -> LogBuilder:
    return training(steps, end=False).artifact(f"stepscope_{name}", json.dumps(payload).encode())


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("lifetime_layout", to_payload(forward_layout(7)) | {"name": ["a"]}, "broken_payload"),
        ("lifetime_layout", to_payload(forward_layout(7)) | {"dead_at": []}, "broken_payload"),
        ("lifetime_layout", to_payload(forward_layout(7)) | {"dead": [5]}, "broken_payload"),
        ("lifetime_layout", to_payload(forward_layout(7)) | {"dead": [-1]}, "broken_payload"),
        ("lifetime_layout", to_payload(forward_layout(7)) | {"born": [-1] * 5}, "broken_payload"),
        ("lifetime_layout", to_payload(forward_layout(7)) | {"storage_bytes": [2**60] * 5}, "broken_payload"),
        ("lifetime_layout", to_payload(forward_layout(7)) | {"storage_bytes": [2**70] * 5}, "broken_payload"),
        ("lifetime_layout", to_payload(forward_layout(0)) | {"function": 3}, "broken_lifetimes"),
        ("lifetimes", to_payload(lifetimes([0], [9])), "unknown_layout"),
        ("lifetimes", to_payload(lifetimes([99], [0])), "unknown_launch"),
        ("lifetimes", to_payload(lifetimes([0], [0])), "broken_lifetimes"),
        ("lifetimes", to_payload(lifetimes([0], [])), "broken_payload"),
        ("lifetimes", to_payload(lifetimes([], [], [(0, 77, 5)])), "unknown_storage"),
        ("lifetimes", to_payload(lifetimes([], [], [(99, 0, 5)])), "unknown_storage"),
        ("lifetimes", to_payload(lifetimes([], [], [(0, 2, 2**52)])), "broken_lifetimes"),
        ("lifetimes", to_payload(lifetimes([], [], [], [(99, 0, 1, 1)])), "unknown_launch"),
        ("scheduler_memory", to_payload(forward_schedule()) | {"graph": 5, "snode": []}, "broken_payload"),
        ("scheduler_memory", to_payload(forward_schedule()) | {"graph": 1, "peak_bytes": -1}, "broken_payload"),
        ("scheduler_memory", to_payload(forward_schedule()) | {"peak_bytes": 7}, "broken_lifetimes"),
        ("growth", to_payload(growth([(0, 99)])), "unknown_storage"),
        ("growth", to_payload(growth([(0, 0)])) | {"holders": []}, "broken_payload"),
        ("lifetime_mismatch", to_payload(mismatch(layout=9)), "unknown_layout"),
        ("lifetime_mismatch", to_payload(mismatch()) | {"kind": []}, "broken_payload"),
        ("memory_step_mismatch", to_payload(step_mismatch()) | {"holders": []}, "broken_payload"),
        ("memory_step_mismatch", to_payload(step_mismatch()) | {"line": None}, "broken_payload"),
        ("memory_step_mismatch", to_payload(step_mismatch()) | {"times": [1, 2]}, "broken_payload"),
        ("memory_step_mismatch", to_payload(step_mismatch()) | {"times": [-1]}, "broken_payload"),
        ("memory_step_mismatch", to_payload(step_mismatch(graph=9)), "unknown_graph"),
        ("recompute_mismatch", to_payload(recompute()) | {"snode": []}, "broken_payload"),
        ("recompute_mismatch", to_payload(recompute()) | {"carried_alloc_bytes": [1]}, "broken_payload"),
        ("recompute_mismatch", to_payload(recompute()) | {"last_use_before": []}, "broken_payload"),
    ],
)
def test_a_broken_record_costs_itself(opened: Open, name: str, payload: Any, reason: str) -> None:
    trace = opened(with_record(name, payload))
    assert problem_counts(trace) == {reason: 1}
    assert lifetime_events(trace) == EVENTS
    memory = graph_memory(trace, 0, call=0)
    assert memory is not None
    assert memory.positions is not None
    assert memory.positions.live_bytes == [512, 1536, 1088, 1088]
    assert summary(trace)["memory"]["peak_bytes"] == 1920


def test_nothing_is_wrong_without_damage(opened: Open) -> None:
    trace = opened(training(1))
    assert problem_counts(trace) == {}
    assert lifetime_events(trace) == EVENTS


def test_a_layout_of_another_graph(opened: Open) -> None:
    log = training(1, end=False)
    data = log.data.replace(b'"call":[0,1],"layout":[0,1]', b'"call":[0,1],"layout":[1,0]')
    trace = opened(data.replace(b'"has_payload"', b'"had_payload"'))
    counts = problem_counts(trace)
    assert counts["broken_lifetimes"] == 1
    assert graph_memory(trace, 0) is not None
    assert alive_in_call(trace, 0) is None


def test_storages_of_a_call_whose_lifetimes_are_lost(opened: Open) -> None:
    data = training(1, end=False).data.replace(b'"call":[0,1],"layout":[0,1]', b'"call":[1],"layout":[1]')
    trace = opened(data.replace(b'"has_payload"', b'"had_payload"'))
    assert problem_counts(trace) == {"unknown_storage": 2}
    alive = alive_in_call(trace, 1)
    assert alive is not None
    assert {(row.name, row.kind, row.device) for row in alive.rows} >= {("relu", "unknown", "unknown")}


def test_storages_that_lead_in_a_circle(opened: Open) -> None:
    log = training(1, end=False)
    circle = backward_layout(8)
    circle.calls_back[:3] = [0, 0, 0]
    circle.met_as[:3] = [1, 2, 0]
    data = log.record(circle).data.replace(b'"call":[0,1],"layout":[0,1]', b'"call":[0,1],"layout":[0,8]')
    trace = opened(data.replace(b'"has_payload"', b'"had_payload"'))
    assert alive_in_call(trace, 1) is not None
    assert live_curve(trace, 0) is not None


def test_positions_behind_the_end_of_a_call(opened: Open) -> None:
    late = forward_layout(0)
    late.born[4], late.dead_at[0] = 2**52, 2**51
    data = training(1, end=False).data.replace(
        json.dumps(to_payload(forward_layout(0)), separators=(",", ":")).encode(),
        json.dumps(to_payload(late), separators=(",", ":")).encode(),
    )
    trace = opened(data.replace(b'"has_payload"', b'"had_payload"'))
    assert problem_counts(trace)["broken_lifetimes"] == 1
    memory = graph_memory(trace, 0)
    assert memory is not None
    assert memory.positions is not None
    assert memory.positions.live_bytes == [512, 1536, 1536, 1088]


def test_a_log_without_its_calls(opened: Open) -> None:
    log = LogBuilder().record(forward_layout()).record(lifetimes([0], [0])).record(growth([(0, 1)]))
    trace = opened(log.record(mismatch()))
    assert problem_counts(trace)["unknown_launch"] == 1
    assert lifetime_events(trace) == 0
    assert live_curve(trace, 0) is None
    assert left_behind(trace) == []
    (row,) = lifetime_mismatches(trace)
    assert (row.call, row.expected_kernel) == (None, None)
    assert all_findings(trace)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
whole = st.lists(st.integers(-3, 9) | st.integers(-(2**63), 2**63 - 1), max_size=6)
perhaps = st.lists(st.none() | st.integers(-3, 9) | st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=5)
TEMPLATES = {
    "lifetime_layout": to_payload(forward_layout(0)),
    "lifetimes": to_payload(lifetimes([0, 1], [0, 1], [(0, 1, start_of(1))], [(0, 0, 5, 6)])),
    "scheduler_memory": to_payload(forward_schedule()),
    "lifetime_mismatch": to_payload(mismatch()),
    "growth": to_payload(growth([(0, 4)])),
    "recompute_mismatch": to_payload(recompute()),
    "memory_step_mismatch": to_payload(step_mismatch()),
}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(TEMPLATES)))
    payload = dict(TEMPLATES[name])
    for key in draw(st.lists(st.sampled_from(sorted(payload)), max_size=3)):
        payload[key] = draw(whole | perhaps | st.integers() | anything)
    return name, payload


@SLOW
@given(st.lists(damaged(), min_size=1, max_size=4), st.booleans())
def test_any_damage_of_memory(records: list[tuple[str, dict[str, Any]]], before: bool) -> None:
    broken = LogBuilder()
    for name, payload in records:
        broken.artifact(f"stepscope_{name}", json.dumps(payload).encode())
    log = training(2)
    with tempfile.TemporaryDirectory() as folder, suppress(StepscopeError):
        path = Path(folder, "x.log")
        path.write_bytes(broken.data + log.data if before else log.data + broken.data)
        with open_trace(path) as trace:
            look_at_everything(trace)


def look_at_everything(trace: Trace) -> None:
    json.dumps(summary(trace))
    assert summary_text(trace)
    for graph in range(2):
        graph_memory(trace, graph)
        compare_memory(trace, 0, graph)
        for node in range(3):
            node_memory(trace, graph, node)
    for call in range(4):
        alive_in_call(trace, call)
        alive_in_call(trace, call, position=1)
    live_curve(trace, 0)
    recompute_detail(trace, 0)
    all_findings(trace)
