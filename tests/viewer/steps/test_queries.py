"""Queries on a log with steps, subgraph calls and two threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.compiles.queries.compiles import compile_detail, list_compiles
from stepscope.viewer.graphs.queries.graphs import graph_detail, list_graphs
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.overview.queries.damage import not_recorded, not_recorded_lines
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.records.queries.artifacts import list_records, record_detail
from stepscope.viewer.steps.queries.steps import timeline
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import (
    MONOTONIC_NS,
    START,
    UNIX_NS,
    WRAPPER,
    LogBuilder,
    calls,
    compile_records,
    graph,
    recorded,
    run,
    tensors,
)

Open = Callable[[LogBuilder | bytes], Trace]


def test_overview_of_a_healthy_run(opened: Open) -> None:
    facts = overview(opened(recorded()))
    assert facts.findings == []
    assert facts.skipped == {}
    assert facts.problems == 0
    assert (facts.counts.steps, facts.counts.launches, facts.counts.launch_sites) == (3, 12, 4)
    assert facts.counts.subgraph_calls == 4
    assert facts.counts.value_rows is None
    assert facts.cache_counts == {"miss": 1}
    assert facts.compile_duration_ns == 1_500_000
    assert facts.overhead.hook_ns == 1_000
    assert facts.overhead.bytes_per_launch is not None
    assert facts.notes == [
        "Values were not recorded; record with --level values to look for NaN, growing magnitudes, reads of unwritten"
        " memory and changed saved tensors.",
        "To look for finite but wrong numbers, record with --judge first --check-eager.",
    ]
    (row,) = facts.runs
    assert (row.argv, row.level, row.complete, row.start_unix_ns) == (
        ["train.py", "--lr", "0.1"],
        "launches",
        True,
        UNIX_NS,
    )


def test_steps(opened: Open) -> None:
    steps = list_steps(opened(recorded()))
    assert [(row.step, row.kind, row.by, row.launches, row.subgraph_calls, row.calls) for row in steps] == [
        (0, "inference", "user", 3, 1, 2),
        (1, "inference", "user", 6, 2, 4),
        (2, "inference", "user", 3, 1, 2),
    ]
    assert steps[0].start_ns == MONOTONIC_NS + 1_000_000
    assert steps[0].duration_ns == 5_000


def test_calls_of_subgraphs_are_no_launches_of_kernels_and_keep_their_rows(opened: Open) -> None:
    shown = timeline(opened(recorded()), 0, 0)
    assert shown is not None
    assert [(call.function, call.launches) for call in shown.calls] == [("call", 2), ("true_graph_0", 1)]
    assert (shown.total_launches, len(shown.launches.launch)) == (4, 4)


def test_times_of_launches_are_absolute_and_sorted(opened: Open) -> None:
    shown = timeline(opened(recorded()), 0, 0)
    assert shown is not None
    assert shown.launches.start_ns == [600, 800, 1100, 1250]
    assert shown.launches.duration_ns == [150, 90, 320, 100]
    assert [shown.sites[site]["kernel"] for site in shown.launches.site] == [
        "extern_kernels.mm", "cpp_fused_relu_0", "true_graph_0", "cpp_fused_relu_0",
    ]  # fmt: skip
    assert shown.launches.count == [1, 1, 1, 1]


def test_calls_know_their_depth_and_parent(opened: Open) -> None:
    shown = timeline(opened(recorded()), 0, 1)
    assert shown is not None
    assert shown.threads == [1, 2]
    outer, inner = [call for call in shown.calls if call.thread == 1]
    assert (outer.graph_label, outer.depth, outer.parent) == ("0/0 forward", 0, None)
    assert (inner.graph_label, inner.depth, inner.parent) == ("0/0 forward · true_graph_0", 1, outer.call)


def test_a_window_holds_what_overlaps_it(opened: Open) -> None:
    trace = opened(recorded())
    start = MONOTONIC_NS + 1_000_000 + 800
    shown = timeline(trace, 0, 0, start_ns=start, end_ns=start + 100)
    assert shown is not None
    assert (shown.window_start_ns, shown.window_end_ns) == (start, start + 100)
    assert shown.launches.start_ns == [0]
    assert shown.total_launches == 4


def test_narrow_neighbours_are_merged_and_none_is_lost(opened: Open) -> None:
    shown = timeline(opened(recorded()), 0, 0, width=1)
    assert shown is not None
    assert sum(shown.launches.count) == 4
    assert len(shown.launches.count) < 4


def test_compile_spans_stand_on_the_monotonic_clock(opened: Open) -> None:
    log = recorded(steps=0, end=False)
    log.record(calls(0, 0, MONOTONIC_NS + 1_100_000_000))
    step = Steps([0], ["inference"], ["call"], [MONOTONIC_NS + 500_000_000], [MONOTONIC_NS + 2_000_000_000])
    log.record(step).record(End("exit", 0))
    shown = timeline(opened(log), 0, 0)
    assert shown is not None
    (span,) = shown.spans
    assert (span.name, span.compile_id, span.duration_ns) == ("dynamo", "0/0", 1_500_000)
    assert abs(span.start_ns - (MONOTONIC_NS + 1_000_000_000)) < 1_000


def test_a_step_without_launches(opened: Open) -> None:
    step = Steps([0], ["train"], ["user"], [MONOTONIC_NS], [MONOTONIC_NS + 10])
    shown = timeline(opened(LogBuilder().record(run()).record(step)), 0, 0)
    assert shown is not None
    assert (shown.launches.launch, shown.calls, shown.threads, shown.sites) == ([], [], [], {})
    assert (shown.total_launches, shown.end_ns - shown.start_ns) == (0, 10)


def test_unknown_step_and_launch_are_none(opened: Open) -> None:
    trace = opened(recorded())
    assert timeline(trace, 0, 99) is None
    assert timeline(trace, 1, 0) is None
    assert launch_detail(trace, 999) is None
    assert graph_detail(trace, 999) is None
    assert compile_detail(trace, 0, "9/9") is None
    assert record_detail(trace, 999_999) is None


def test_launch_panel(opened: Open) -> None:
    detail = launch_detail(opened(recorded()), 1)
    assert detail is not None
    assert (detail.step, detail.ordinal, detail.of, detail.previous, detail.next) == (0, 2, 4, 0, 2)
    assert detail.site.kernel == "cpp_fused_relu_0"
    assert detail.site.snodes == ["op1"]
    assert detail.site.stacks[0][-1].code == "y = (x @ w).relu()"
    assert detail.site.fx_nodes == ["relu"]
    assert detail.step_offset_ns == 800
    assert detail.graph.phase == "forward"


def test_written_by_follows_reuse_and_read_by_stops_at_the_next_write(opened: Open) -> None:
    trace = opened(recorded())
    product, relu, subgraph = (launch_detail(trace, launch) for launch in (0, 1, 2))
    assert product is not None
    assert relu is not None
    assert subgraph is not None
    assert product.written_by == {0: None, 1: None}
    assert product.read_by == {2: [1]}
    assert relu.written_by == {0: 0}
    assert relu.read_by == {0: [2]}
    assert subgraph.written_by == {0: 1}


def test_code_of_a_launch_is_its_kernel_and_its_statement(opened: Open) -> None:
    trace = opened(recorded())
    relu, product = launch_detail(trace, 1), launch_detail(trace, 0)
    assert relu is not None
    assert product is not None
    assert relu.code is not None
    assert relu.code.startswith("cpp_fused_relu_0 = async_compile.cpp_pybinding(")
    assert 'extern "C" void kernel' in relu.code
    assert "    cpp_fused_relu_0(buf1)\n" in relu.code
    assert relu.code_first_line == 4
    assert product.code is not None
    assert "extern_kernels.mm(arg0_1, arg1_1, out=buf0)" in product.code
    assert product.code_first_line == 18


def test_tensors_are_those_in_force_at_the_call(opened: Open) -> None:
    log = recorded(steps=2, end=False).record(tensors(call=10, size=6))
    trace = opened(log)
    first, later = launch_detail(trace, 0), launch_detail(trace, 4)
    assert first is not None
    assert later is not None
    assert first.site.arguments[0].tensors[0]["size"] == [4, 8]
    assert later.site.arguments[0].tensors[0]["size"] == [6, 8]
    assert first.site.arguments[2].tensors == []


def test_graphs(opened: Open) -> None:
    trace = opened(recorded())
    (row,) = list_graphs(trace)
    assert (row.launch_sites, row.calls, row.launches, row.subgraph_calls, row.duration_ns) == (4, 4, 12, 4, 4_000)
    detail = graph_detail(trace, row.graph)
    assert detail is not None
    assert detail.code == WRAPPER
    assert [site.launches for site in detail.sites] == [4, 4, 4, 4]
    assert [(m.event, m.buffer, m.of) for m in detail.memory] == [("allocate", "buf0", None), ("reuse", "buf1", "buf0")]


def test_a_graph_that_cannot_be_seen_says_why(opened: Open) -> None:
    log = LogBuilder().record(run()).record(graph(sites=[], not_recorded="the C++ wrapper launches by itself"))
    trace = opened(log.record(End("exit", 0)))
    (row,) = list_graphs(trace)
    assert (row.launch_sites, row.launches) == (None, None)
    assert [(r.what, r.graph) for r in not_recorded(trace)] == [("launches of a graph", row.graph)]


def test_skipped_records_are_counted(opened: Open) -> None:
    log = recorded(end=False)
    for _ in range(3):
        log.record(Skipped("values", "unsupported dtype", 0))
    (row,) = not_recorded(opened(log.record(End("exit", 0))))
    assert (row.what, row.why, row.count, row.graph) == ("values", "unsupported dtype", 3, 0)


def test_what_is_alike_in_several_graphs_is_one_line(opened: Open) -> None:
    log = recorded(end=False)
    for graph_number in (0, 1, 1, None):
        log.record(Skipped("a statement of the wrapper", "its form is not known", graph_number))
    (row,) = not_recorded_lines(opened(log.record(End("exit", 0))))
    assert (row.what, row.count, row.graph) == ("a statement of the wrapper", 4, None)


def test_compile(opened: Open) -> None:
    trace = opened(recorded())
    (row,) = list_compiles(trace)
    assert (row.frame, row.status, row.cache, row.attempts) == ("forward (model.py:10)", "ok", "miss", 1)
    assert row.start_unix_ns == UNIX_NS + 1_000_000_000
    detail = compile_detail(trace, 0, "0/0")
    assert detail is not None
    assert [(frame.file, frame.line, frame.code) for frame in detail.stack] == [("/src/model.py", 12, "y = x @ w")]
    assert detail.metrics is not None
    assert detail.metrics["co_name"] == "forward"
    assert [graph.graph for graph in detail.graphs] == [0]
    assert {record.event for record in detail.records} == {
        "dynamo_start", "artifact", "inductor_output_code", "compilation_metrics",
    }  # fmt: skip
    assert [(span.name, span.start_ns) for span in detail.spans] == [("dynamo", 0)]


def test_records_are_paged_and_narrowed(opened: Open) -> None:
    trace = opened(recorded())
    page = list_records(trace, limit=2, offset=1)
    assert len(page.rows) == 2
    assert page.rows[0].record == 1
    assert page.total == sum(count for _, count in page.kinds)
    only = list_records(trace, kind="stepscope_steps")
    assert (only.total, len(only.rows)) == (3, 3)
    assert only.kinds == page.kinds
    found = list_records(trace, text="CACHE_MISS")
    assert [row.name for row in found.rows] == ["fx_graph_cache_miss"]
    assert list_records(trace, text="100%' OR 1=1 --").total == 0


def test_record_with_its_payload(opened: Open) -> None:
    trace = opened(recorded())
    (row,) = list_records(trace, kind="inductor_output_code").rows
    detail = record_detail(trace, row.record)
    assert detail is not None
    assert detail.payload == WRAPPER
    assert detail.metadata["inductor_output_code"] == {"filename": "/tmp/x/cwrapper.py"}
    short = record_detail(trace, row.record, limit=10)
    assert short is not None
    assert (short.payload, short.truncated) == (WRAPPER[:10], True)


def test_time_of_records_is_unix_time(opened: Open) -> None:
    trace = opened(recorded(utc_offset_s=0))
    (first,) = list_records(trace, limit=1).rows
    assert first.time_unix_ns == UNIX_NS + 1_000_000
    assert START.year == 2026


def test_a_plain_log_gets_its_graphs_from_the_generated_code(opened: Open) -> None:
    trace = opened(compile_records(LogBuilder()))
    (row,) = list_graphs(trace)
    assert (row.wrapper_key, row.aot_id, row.phase, row.compile_id) == ("cwrapper", "0_forward", "forward", "0/0")
    assert (row.launch_sites, row.calls, row.launches) == (None, None, None)
    facts = overview(trace)
    assert (facts.counts.launches, facts.counts.steps) == (None, None)
    assert "PyTorch wrote this trace without stepscope" in facts.notes[0]


def test_several_logs_are_kept_apart(tmp_path: Path) -> None:
    for rank in range(2):
        log = recorded(rank=rank, world_size=2, pid=100 + rank)
        log.write(tmp_path / f"stepscope_trace_rank_{rank}_{100 + rank}_x.log")
    with open_trace(tmp_path) as trace:
        assert [row.rank for row in overview(trace).runs] == [0, 1]
        assert [(row.log, row.step) for row in list_steps(trace)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
        assert [row.log for row in list_graphs(trace)] == [0, 1]
        shown = timeline(trace, 1, 2)
        assert shown is not None
        detail = launch_detail(trace, shown.launches.launch[0])
        assert detail is not None
        assert (detail.log, detail.rank, detail.step, detail.ordinal) == (1, 1, 2, 1)


@pytest.mark.parametrize("threads", [8])
def test_queries_from_several_threads(opened: Open, threads: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    trace = opened(recorded())
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda _: (launch_detail(trace, 1), overview(trace)), range(3 * threads)))
    assert all(item == found[0] for item in found)
