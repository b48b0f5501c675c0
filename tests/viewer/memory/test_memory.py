"""Queries about memory against sums that are worked out by hand (see `memory_logs`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.graphs import MemoryStatement
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.viewer.memory.queries.alive import alive_in_call
from stepscope.viewer.memory.queries.compare import compare_memory, estimate_gaps
from stepscope.viewer.memory.queries.graph import graph_memory, measured_calls
from stepscope.viewer.memory.queries.graphs import has_lifetimes, lifetime_events
from stepscope.viewer.memory.queries.nodes import node_memory
from stepscope.viewer.memory.queries.run import live_curve, run_peaks
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.trace import Trace
from tests.logs import memory_logs as logs
from tests.logs.memory_logs import (
    BACKWARD_PEAK,
    FORWARD_PEAK,
    NEW,
    RUN_PEAK,
    calls_of,
    forward,
    forward_layout,
    forward_schedule,
    layout,
    lifetimes,
    start_of,
    training,
)
from tests.logs.synthetic import LogBuilder, recorded, run
from tests.logs.value_logs import Program

Open = Callable[[LogBuilder | bytes], Trace]
STEP = [384, 896, 1920, 1472, 1536, 1792, 896, 256]


def test_estimated_and_measured_on_the_axis_of_nodes(opened: Open) -> None:
    trace = opened(training())
    assert problem_counts(trace) == {}
    memory = graph_memory(trace, 0)
    assert memory is not None
    assert memory.nodes is not None
    assert memory.nodes.snode == ["op0", "op1", "op2"]
    assert memory.nodes.after_alloc_bytes == [512, 1536, 1088]
    assert memory.nodes.after_free_bytes == [512, 1024, 1088]
    assert memory.nodes.measured_bytes == [512, 1536, 1088]
    assert memory.nodes.measured_base_bytes == [384, 384, 384]
    assert memory.nodes.allocated_bytes == [None, None, None]
    assert memory.base_bytes == 384
    assert memory.positions is not None
    assert memory.positions.live_bytes == [512, 1536, 1088, 1088]
    assert memory.positions.dead_bytes == [0, 0, 512, 0]
    assert memory.positions.start_ns == [100, 200, 300, 2000]
    for peak in (memory.estimated_peak, memory.measured_peak):
        assert peak is not None
        assert (peak.peak_bytes, peak.snode, peak.snode_index) == (FORWARD_PEAK, "op1", 1)
        assert peak.source is not None
        assert peak.source.line == 11


def test_an_input_that_the_graph_may_free_is_in_both_series(opened: Open) -> None:
    memory = graph_memory(opened(training()), 1, call=3)
    assert memory is not None
    assert memory.nodes is not None
    assert memory.call is not None
    assert memory.nodes.after_alloc_bytes == memory.nodes.measured_bytes == [BACKWARD_PEAK, 384]
    assert (memory.call.call, memory.call.step, memory.call.peak_bytes, memory.call.base_bytes) == (3, 1, 1280, 320)


def test_without_a_schedule_what_a_call_made_is_measured(opened: Open) -> None:
    data = training().data.replace(b'"stepscope_scheduler_memory"', b'"stepscope_something_new_yet"')
    memory = graph_memory(opened(data), 1)
    assert memory is not None
    assert (memory.nodes, memory.base_bytes, memory.estimated_peak) == (None, None, None)
    assert memory.positions is not None
    assert memory.positions.live_bytes == [256, 384, 384]
    assert memory.positions.base_bytes == [1344, 320, 320]


def test_without_lifetimes_there_is_the_estimate(opened: Open) -> None:
    log = LogBuilder().record(run()).record(forward().graph()).record(forward_schedule())
    memory = graph_memory(opened(log), 0)
    assert memory is not None
    assert memory.nodes is not None
    assert memory.nodes.measured_bytes == [None] * 3
    assert memory.nodes.launched == [False] * 3
    assert (memory.call, memory.positions, memory.measured_peak) == (None, None, None)


def test_nothing_about_memory(opened: Open) -> None:
    trace = opened(recorded())
    assert graph_memory(trace, 0) is None
    assert graph_memory(trace, 99) is None
    assert live_curve(trace, 0) is None
    assert alive_in_call(trace, 0) is None
    assert compare_memory(trace, 0, 0) is None
    assert not has_lifetimes(trace)
    assert lifetime_events(trace) is None
    answer = summary(trace)
    assert answer["counts"]["lifetime_events"] is None
    assert set(answer["memory"].values()) == {None}


def test_a_node_without_a_launch_takes_the_value_before_it(opened: Open) -> None:
    log = LogBuilder().record(run()).record(forward().graph()).record(calls_of(0, forward(), 0, start_of(0)))
    memory = forward_schedule(snode=["op0", "nop", "op1_op2"], members=[["op0"], ["nop"], ["op1", "op2"]])
    log.record(memory).record(forward_layout()).record(lifetimes([0], [0]))
    found = graph_memory(opened(log), 0)
    assert found is not None
    assert found.nodes is not None
    assert found.nodes.measured_bytes == [512, 512, 1536]
    assert found.nodes.launched == [True, False, True]
    assert found.nodes.position == [0, 0, 1]


def test_the_allocator_stands_beside(opened: Open) -> None:
    memory = graph_memory(opened(training(allocator=True)), 0, call=2)
    assert memory is not None
    assert memory.nodes is not None
    assert memory.positions is not None
    assert memory.nodes.allocated_bytes == [2048, 4096, None]
    assert memory.nodes.reserved_bytes == [8192, 8192, None]
    assert memory.positions.allocator_position == [0, 1, 3]
    assert memory.positions.allocated_bytes == [2048, 4096, 3072]


def test_one_node(opened: Open) -> None:
    trace = opened(training())
    node = node_memory(trace, 0, 1)
    assert node is not None
    assert [(d.name, d.storage_bytes) for d in node.allocated] == [("buf1", 1024)]
    assert [(d.name, d.storage_bytes) for d in node.freed] == [("buf0", 512)]
    assert [(d.name, d.storage_bytes) for d in node.born] == [("buf1", 1024)]
    assert [(d.name, d.storage_bytes) for d in node.dead] == [("buf0", 512)]
    assert [b.name for b in node.expected_alive] == ["buf1", "buf0"]
    assert node.positions == [1]
    node = node_memory(trace, 1, 0, call=5)
    assert node is not None
    assert [(d.name, d.storage_bytes, d.role) for d in node.freed] == [("relu", 1024, "input")]
    assert [(d.name, d.storage_bytes) for d in node.dead] == [("relu", 1024)]
    assert node_memory(trace, 0, 3) is None


def test_calls_to_choose_from(opened: Open) -> None:
    trace = opened(training(3))
    assert [(c.call, c.step, c.peak_bytes) for c in measured_calls(trace, 0)] == [
        (0, 0, 1536),
        (2, 1, 1536),
        (4, 2, 1536),
    ]
    assert [c.call for c in measured_calls(trace, 1, step=1)] == [3]


def test_live_bytes_of_the_run(opened: Open) -> None:
    trace = opened(training(3))
    curve = live_curve(trace, 0)
    assert curve is not None
    assert curve.high_bytes == curve.low_bytes == STEP * 3
    assert curve.at_ns[:8] == [0, 100, 200, 300, 4000, 4100, 4200, 7500]
    assert curve.made_bytes[:8] == [0, 512, 1536, 1088, 1088, 1344, 448, 0]
    assert curve.saved_bytes[:8] == [0, 0, 1024, 1024, 1024, 1024, 0, 0]
    assert curve.kept_bytes[:8] == [0, 0, 0, 64, 64, 320, 448, 0]
    assert not curve.merged
    assert lifetime_events(trace) == (8 + 7 + 7) + 3 * 7
    (peak,) = run_peaks(trace)
    assert (peak.live_bytes, peak.made_bytes, peak.step, peak.graph, peak.position) == (RUN_PEAK, 1536, 0, 0, 1)


def test_a_window_of_the_curve_begins_with_what_was_alive(opened: Open) -> None:
    curve = live_curve(opened(training(3)), 0, start_of(0) + 4_650, start_of(0) + 12_000, width=3)
    assert curve is not None
    assert curve.at_ns == [0, 50, 3350, 5850]
    assert curve.low_bytes == [1792, 896, 256, 384]
    assert curve.high_bytes == [1792, 896, 256, 1920]
    assert curve.merged
    assert (curve.made_bytes, curve.saved_bytes, curve.kept_bytes) == (
        [1344, 448, 0, 1536],
        [1024, 0, 0, 1024],
        [320, 448, 0, 0],
    )


@pytest.mark.slow
def test_levels_of_detail_keep_every_peak(opened: Open) -> None:
    trace = opened(training(600))
    for width in (1, 2, 7, 100):
        curve = live_curve(trace, 0, width=width)
        assert curve is not None
        assert max(curve.high_bytes) == RUN_PEAK
        assert min(curve.low_bytes) == 256
        assert len(curve.at_ns) <= 2 * width + 2
    inside = live_curve(trace, 0, start_of(300), start_of(301), width=1600)
    assert inside is not None
    assert inside.high_bytes == [256, *STEP]


def test_who_is_alive_at_the_peak_of_a_call(opened: Open) -> None:
    trace = opened(training())
    alive = alive_in_call(trace, 0)
    assert alive is not None
    assert (alive.position, alive.snode, alive.storage_bytes, alive.base_bytes) == (1, "op1", RUN_PEAK, 384)
    assert [(r.name, r.kind, r.storage_bytes, r.is_base) for r in alive.rows] == [
        ("buf1", "saved", 1024, False), ("buf0", "temporary", 512, False), ("primals_1", "unknown", 256, True),
        ("primals_2", "unknown", 128, True),
    ]  # fmt: skip
    assert [r.source.line if r.source else None for r in alive.rows] == [11, 10, None, None]
    assert alive.by_kind == {"unknown": 384, "saved": 1024, "temporary": 512}
    assert [(g.kind, g.storage_bytes) for g in alive.groups[:2]] == [("saved", 1024), ("temporary", 512)]


def test_a_backward_call_names_the_line_that_made_what_was_saved(opened: Open) -> None:
    alive = alive_in_call(opened(training()), 3, position=0)
    assert alive is not None
    saved = alive.rows[0]
    assert (saved.name, saved.kind, saved.call, saved.graph, saved.step) == ("relu", "saved", 2, 1, 1)
    assert saved.source is not None
    assert saved.source.code == "line of cpp_fused_relu_0"
    assert {r.name: r.kind for r in alive.rows[1:]} == {
        "primals_1": "unknown",
        "buf3": "output",
        "tangents_1": "unknown",
    }


def test_places_behind_the_call_are_its_end(opened: Open) -> None:
    alive = alive_in_call(opened(training()), 1, position=10**9, limit=1)
    assert alive is not None
    assert (alive.position, alive.snode, len(alive.rows), alive.storages) == (2, None, 1, 4)
    assert alive.storage_bytes == 256 + 64 + 256 + 128


@pytest.mark.parametrize(("since", "live"), [(650, 896), (750, 1920), (4_650, 1792), (7_000, 896), (9_000, 256)])
def test_live_bytes_at_a_moment(opened: Open, since: int, live: int) -> None:
    curve = live_curve(opened(training()), 0)
    assert curve is not None
    at = max(i for i, ns in enumerate(curve.at_ns) if ns + curve.start_ns <= start_of(1) + since)
    assert curve.high_bytes[at] == live


def test_other_names_of_one_memory(opened: Open) -> None:
    program = forward()
    program.memory.append(MemoryStatement("reuse", "buf9", "call", 30, "buf0"))
    log = LogBuilder().record(run()).record(program.graph()).record(calls_of(0, program, 0, start_of(0)))
    alive = alive_in_call(opened(log.record(forward_layout()).record(lifetimes([0], [0]))), 0)
    assert alive is not None
    assert {row.name: row.other_names for row in alive.rows}["buf0"] == ["buf9"]


def test_devices_have_curves_of_their_own(opened: Open) -> None:
    log = LogBuilder().record(run()).record(forward().graph())
    for call, device in enumerate(("cpu", "cuda:0")):
        log.record(calls_of(call, forward(), 0, start_of(call)))
        log.record(replace(forward_layout(call), device=[device] * 5))
    trace = opened(log.record(lifetimes([0, 1], [0, 1], [(1, 3, start_of(2))])))
    curve = live_curve(trace, 0)
    assert curve is not None
    assert sorted(curve.devices) == ["cpu", "cuda:0"]
    cuda = live_curve(trace, 0, device="cuda:0")
    assert cuda is not None
    assert cuda.high_bytes == [384, 896, 1920, 1472, 448]
    assert live_curve(trace, 0, device="cuda:7") is None
    assert {(peak.device, peak.live_bytes) for peak in run_peaks(trace)} == {("cpu", 1920), ("cuda:0", 1920)}


def test_two_steps_of_one_graph(opened: Open) -> None:
    log = training(1)
    log.record(calls_of(2, forward(), 1, start_of(1)))
    bigger = forward_layout(9)
    bigger.storage_bytes[3] = 5 * 1024
    trace = opened(log.record(bigger).record(lifetimes([2], [9])))
    found = compare_memory(trace, 0, 0, 0, 2)
    assert found is not None
    assert found.same_graph
    assert (found.peak_delta_bytes, found.base_delta_bytes) == (4096, 0)
    largest = found.by_buffer[0]
    assert (largest.name, largest.left_bytes, largest.right_bytes, largest.delta_bytes) == ("buf1", 1024, 5120, 4096)
    assert found.by_source[0].name == "/src/model.py:11"
    other = compare_memory(trace, 0, 1)
    assert other is not None
    assert not other.same_graph
    assert other.by_buffer == []
    assert other.peak_delta_bytes == BACKWARD_PEAK - (1536 + 4096)


def test_what_makes_a_gap(opened: Open) -> None:
    program = Program().allocate("buf0").launch("a", ["x"], ["buf0"]).launch("b", ["buf0"], ["buf1"])
    program.launch("c", ["buf1"], ["buf2"]).allocate("buf1", "buf2")
    program.memory.append(MemoryStatement("reuse", "buf2", "call", 30, "buf0"))
    buffers: list[Any] = [
        ("buf0", 100, 0, 1, "temporary"),
        ("buf1", 50, 1, 2, "temporary"),
        ("buf2", 0, 2, -1, "output"),
    ]
    storages: list[Any] = [
        ("buf0", "allocated", 100, 0, NEW),
        ("buf1", "allocated", 80, 1, NEW),
        ("s", "returned", 300, 2, NEW),
    ]
    log = LogBuilder().record(run()).record(program.graph()).record(calls_of(0, program, 0, start_of(0)))
    log.record(logs.schedule(0, buffers, {}, 3)).record(layout(0, 0, storages, [])).record(lifetimes([0], [0]))
    (gap,) = estimate_gaps(opened(log))
    assert (gap.estimated.peak_bytes, gap.measured.peak_bytes, gap.gap_bytes) == (150, 480, 330)
    assert [(b.name, b.measured_bytes, b.expected_bytes) for b in gap.buffers] == [
        ("s", 300, 0), ("buf0", 100, 0), ("buf1", 80, 50),
    ]  # fmt: skip
    assert gap.buffers[0].why == "the schedule does not contain it"


@pytest.mark.parametrize(
    ("dynamic", "hint", "sizes_of_data", "is_told"),
    [(False, 8, False, True), (True, 64, False, True), (True, 8, False, False), (True, 64, True, False)],
)
def test_an_estimate_for_other_sizes_says_nothing(
    opened: Open, dynamic: bool, hint: int, sizes_of_data: bool, is_told: bool
) -> None:
    """Of a graph with dynamic shapes it is an estimate for the inputs that the graph was compiled with."""
    program = Program().allocate("buf0").launch("a", ["x"], ["buf0"])
    storages: list[Any] = [("x", "input", 64, 0, NEW), ("buf0", "allocated", 400, 0, NEW)]
    graph = replace(program.graph(), dynamic=dynamic)
    log = LogBuilder().record(run()).record(graph)
    if sizes_of_data:
        code = b"def call(args):\n    u0 = buf1.item()\n"
        log.torch("inductor_output_code", {"filename": f"/tmp/x/{graph.wrapper_key}.py"}, code, frame_id=0)
    log.record(calls_of(0, program, 0, start_of(0)))
    log.record(logs.schedule(0, [("buf0", 50, 0, -1, "output")], {"x": hint}, 1))
    log.record(layout(0, 0, storages, [])).record(lifetimes([0], [0]))
    assert [gap.gap_bytes for gap in estimate_gaps(opened(log))] == ([350] if is_told else [])


def test_an_input_that_its_caller_still_holds_explains_a_gap(opened: Open) -> None:
    program = Program().allocate("buf0").launch("a", ["relu"], ["buf0"]).free("relu")
    program.allocate("buf1").launch("b", ["buf0"], ["buf1"])
    buffers: list[Any] = [
        ("relu", 64, 0, 0, "input"), ("buf0", 100, 0, -1, "output"), ("buf1", 50, 1, -1, "output"),
    ]  # fmt: skip
    storages: list[Any] = [
        ("relu", "input", 64, 0, NEW), ("buf0", "allocated", 100, 0, NEW), ("buf1", "allocated", 50, 1, NEW),
    ]  # fmt: skip
    log = LogBuilder().record(run()).record(program.graph()).record(calls_of(0, program, 0, start_of(0)))
    log.record(logs.schedule(0, buffers, {}, 2)).record(layout(0, 0, storages, []))
    trace = opened(log.record(lifetimes([0], [0], [(0, 0, start_of(1))])))
    (gap,) = estimate_gaps(trace)
    assert (gap.estimated.peak_bytes, gap.measured.peak_bytes) == (164, 214)
    assert [(b.name, b.measured_bytes, b.expected_bytes) for b in gap.buffers] == [("relu", 64, 0)]
    assert gap.buffers[0].why == (
        "according to the schedule the graph has freed this input; its caller or autograd still holds it"
    )


def test_a_storage_that_an_inner_call_made_counts_once(opened: Open) -> None:
    """A subgraph makes 64 and gives it back: for the outer call it is returned, made by a call behind it."""
    outer = Program().launch("true_graph_0", ["x"], ["buf0"], "subgraph")
    graph = replace(outer.graph(), functions=["call", "true_graph_0"])
    calls = Calls([0, 1], [0, 0], [0, 1], [0, 0], [1, 1], [None, 0], [1000, 1200], [1000, 300], [1, 0], ["ok"] * 2)
    log = LogBuilder().record(run()).record(graph).record(Launches(calls, [0], [1100], [1600]))
    log.record(layout(0, 0, [("buf0", "returned", 64, 0, (-1, None, 0))], []))
    log.record(layout(1, 0, [("true_graph_0_buf0", "allocated", 64, 0, NEW)], [], function=1))
    trace = opened(log.record(lifetimes([0, 1], [0, 1], [(1, 0, 5000)])))
    assert problem_counts(trace) == {}
    curve = live_curve(trace, 0)
    assert curve is not None
    assert curve.high_bytes == [64, 0]
    memory = graph_memory(trace, 0)
    assert memory is not None
    assert memory.positions is not None
    assert memory.positions.live_bytes == [64, 64]
    assert memory.subgraphs == ["true_graph_0"]
    assert graph_memory(trace, 0, subgraph="true_graph_0") is not None


def test_the_summary(opened: Open) -> None:
    trace = opened(training(5, keep=99))
    answer = summary(trace)
    first, second = answer["graphs"]
    assert (first["estimated_peak_bytes"], first["estimated_peak_snode"], first["estimated_peak_index"]) == (
        1536,
        "op1",
        1,
    )
    assert (second["measured_peak_bytes"], second["measured_peak_snode"], second["measured_peak_index"]) == (
        1280,
        "op0",
        0,
    )
    parts = answer["memory"].pop("peak_parts")
    assert sum(part["storage_bytes"] for part in parts) == 1920 + 4 * 64
    assert answer["memory"] == {
        "peak_bytes": 1920 + 4 * 64, "peak_step": 4, "peak_graph": 0, "growth_bytes_per_step": None,
    }  # fmt: skip
    text = summary_text(trace)
    assert "Memory  at most 2.2 kB in step 4, graph 0 (0_forward)" in text
    assert "1.5 kB @1" in text
    assert "  The number behind @ is the scheduler node of the peak, counted from 0.\n" in text
