"""Sums of the launches in a span of a step, and findings of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.overview.queries.overview import first_page
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.steps.filters import overlay_choices, steps_strip
from stepscope.viewer.steps.marks import step_marks
from stepscope.viewer.steps.queries.area import area_sums
from stepscope.viewer.steps.queries.finding_launches import finding_places
from stepscope.viewer.store.trace import Trace
from tests.logs import overflow_log
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, graph, provenance, recorded, run

Open = Callable[[LogBuilder | bytes], Trace]
START = MONOTONIC_NS + 1_000_000
"""Start of step 0, whose launches start at 600, 800, 1100 and 1250 and last 150, 90, 320 and 100 ns."""


def sums(trace: Trace, start: int | None = None, end: int | None = None) -> list[tuple[str, int, int, int | None]]:
    span = [None if at is None else START + at for at in (start, end)]
    found = area_sums(trace, 0, 0, *span)
    assert found is not None
    return [(site.kernel, site.launches, site.timed, site.duration_ns) for site in found.sites]


def test_the_whole_step_counts_each_launch(opened: Open) -> None:
    assert sums(opened(recorded())) == [
        ("true_graph_0", 1, 1, 320),
        ("extern_kernels.mm", 1, 1, 150),
        ("cpp_fused_relu_0", 1, 1, 100),
        ("cpp_fused_relu_0", 1, 1, 90),
    ]


def test_a_launch_that_lies_partly_in_the_span_counts_with_that_part(opened: Open) -> None:
    trace = opened(recorded())
    assert sums(trace, 700, 850) == [("extern_kernels.mm", 1, 1, 50), ("cpp_fused_relu_0", 1, 1, 50)]
    assert sums(trace, 900, 1_000) == []


def test_sums_do_not_depend_on_the_level_of_detail(opened: Open) -> None:
    """Many launches that the page shows as one are counted one by one."""
    log = LogBuilder().record(run()).record(graph()).record(provenance())
    for call in range(2_000):
        log.record(calls(call, 0, START + 10_000 * call))
    found = area_sums(opened(log), 0, 0, START, START + 10_000 * 1_000 - 1)
    assert found is not None
    assert sum(site.launches for site in found.sites) == 4_000
    assert {site.kernel: site.duration_ns for site in found.sites}["extern_kernels.mm"] == 1_000 * 150


def test_no_sums_of_a_step_that_is_not_there(opened: Open) -> None:
    assert area_sums(opened(recorded()), 0, 99) is None


def test_a_site_names_the_lines_that_it_computes_once_each(opened: Open) -> None:
    found = area_sums(opened(recorded()), 0, 0)
    assert found is not None
    lines = {site.kernel: [(line.file.rpartition("/")[2], line.line) for line in site.lines] for site in found.sites}
    assert lines["extern_kernels.mm"]
    assert all(len(of) == len(set(of)) for of in lines.values())


def test_a_launch_names_its_neighbours_of_the_same_kernel(opened: Open) -> None:
    trace = opened(recorded())
    relu = [launch for launch in range(4) if _detail(trace, launch).site.kernel == "cpp_fused_relu_0"]
    first, last = (_detail(trace, launch) for launch in relu)
    assert (first.previous_same, first.next_same) == (None, last.launch)
    assert (last.previous_same, last.next_same) == (first.launch, None)
    only = _detail(trace, 0)
    assert (only.previous_same, only.next_same) == (None, None)


def _detail(trace: Trace, launch: int) -> Any:
    found = launch_detail(trace, launch)
    assert found is not None
    return found


def finding(**changes: Any) -> Finding:
    return Finding(**{
        "kind": "k", "severity": "warning", "title": "A title", "rule": "", "evidence": {}, "page": "/", **changes,
    })  # fmt: skip


def test_findings_of_a_step_are_marked_at_their_launch_the_worst_first(opened: Open) -> None:
    trace = opened(recorded())
    found = [
        finding(launch=1, step=0),
        finding(step=0, severity="critical", page="/graphs/0"),
        finding(step=1),
        finding(launch=4),
        finding(step=0, log=3),
    ]
    marks = step_marks(found, finding_places(trace, found), 0, 0)
    assert [(mark.sign, mark.launch, mark.start_ns) for mark in marks] == [("✖", None, None), ("▲", 1, START + 800)]
    assert [mark.launch for mark in step_marks(found, finding_places(trace, found), 0, 1)] == [None, 4]


def test_a_recorded_finding_is_marked_on_its_step_and_in_the_strip(opened: Open) -> None:
    trace = opened(overflow_log.recorded())
    findings = first_page(trace).findings
    worst = next(row for row in findings if row.launch is not None)
    assert worst.step is not None
    marks = step_marks(findings, finding_places(trace, findings), 0, worst.step)
    assert worst.launch in [mark.launch for mark in marks]
    strip = steps_strip(list_steps(trace), findings)
    assert strip is not None
    assert {bar.step.step: bar.sign for bar in strip.bars}[worst.step] == marks[0].sign


def test_the_median_step_of_the_same_kind_can_be_compared_with(opened: Open) -> None:
    steps = list_steps(opened(recorded(steps=5)))
    first, *others = overlay_choices(steps, steps[1])
    assert (first.value, first.duration_ns) == ("median", sorted(step.duration_ns or 0 for step in steps)[2])
    assert [choice.step for choice in others] == [0, 2, 3, 4]
    assert [choice.value for choice in overlay_choices(steps[:2], steps[0])] == ["1"]
