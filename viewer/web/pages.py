"""From an address to the context of its page: which queries a page asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.viewer.compiles import page as compiles_page
from stepscope.viewer.compiles import summary_page
from stepscope.viewer.graphs.queries.kernel_code import CONTEXT_LINES
from stepscope.viewer.memory import page as memory_page
from stepscope.viewer.memory.queries.steps import RunCurve
from stepscope.viewer.memory.rows import LiveCurve
from stepscope.viewer.overview import page as overview_page
from stepscope.viewer.overview.summary_answer import Summary
from stepscope.viewer.ranks import page as ranks_page
from stepscope.viewer.records import page as records_page
from stepscope.viewer.search import page as search_page
from stepscope.viewer.steps.queries.step_sources import step_sources
from stepscope.viewer.steps.rows import LaunchDetail, Timeline
from stepscope.viewer.text.highlight import Line, highlight
from stepscope.viewer.values import page as values_page
from stepscope.viewer.web.addresses import NotThere, Page, Request, Twin
from stepscope.viewer.web.contexts import (
    BufferPage,
    BuffersPage,
    CurvePage,
    GraphMemoryPage,
    GraphPage,
    GraphsPage,
    KernelPage,
    KernelsPage,
    LaunchPage,
    MemoryOverviewPage,
    ProblemsPage,
    RecomputePage,
    StepPage,
    StepsPage,
    ValuesPage,
)
from stepscope.viewer.web.parts import part

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace

GAP = "…"
"""The line that stands for what `kernel_code.cut` leaves out."""
GRAPHS_PER_PAGE = 500
FULL_WIDTH = 1600
"""Bins of the first picture of a step: about one per pixel of a wide screen."""


def steps_page(trace: Trace, request: Request) -> StepsPage:
    from stepscope.viewer.overview.queries.runs import list_runs, list_steps

    log = request.optional_id("log")
    curve = part("The memory of the run", None, memory_page.run_curve_page, trace, request)
    steps = list_steps(trace, log)
    return StepsPage(list_runs(trace), log, steps, curve, step_sources(steps))


def step_page(trace: Trace, request: Request) -> StepPage:
    from stepscope.viewer.overview.queries.runs import list_steps

    timeline = timeline_page(trace, request)
    steps = list_steps(trace, timeline.log)
    row = next(row for row in steps if row.step == timeline.step)
    launch = request.number("launch")
    shown = None if launch is None else part(f"Launch {launch}", None, launch_page_of, trace, launch)
    if shown is not None and (shown.launch.log, shown.launch.step) != (row.log, row.step):
        raise NotThere(
            f"Launch {launch} is not in step {row.step} but in step {shown.launch.step} of log {shown.launch.log}."
        )
    live = part("The memory of the step", None, live_page, trace, timeline)
    return StepPage(row, steps, timeline, shown, live)


def live_page(trace: Trace, timeline: Timeline, width: int = FULL_WIDTH) -> LiveCurve | None:
    """Live bytes in the window of a timeline."""
    from stepscope.viewer.memory.queries.run import live_curve

    return live_curve(trace, timeline.log, timeline.window_start_ns, timeline.window_end_ns, width)


def timeline_page(trace: Trace, request: Request) -> Timeline:
    from stepscope.viewer.steps.queries.steps import timeline

    log, step = request.number("log", 0) or 0, request.id("step")
    width = max(1, min(request.number("width") or FULL_WIDTH, 1_000_000))
    start, end = request.number("start_ns"), request.number("end_ns")
    found = timeline(trace, log, step, start_ns=start, end_ns=end, width=width)
    if found is None:
        raise NotThere(f"Log {log} of this trace holds no step {step}.")
    return found


def launch_page(trace: Trace, request: Request) -> LaunchPage:
    return launch_page_of(trace, request.id("launch"))


def launch_page_of(trace: Trace, launch: int) -> LaunchPage:
    from stepscope.viewer.findings.crash.launch_deaths import launch_deaths
    from stepscope.viewer.graphs.queries.launches import launch_detail

    detail = launch_detail(trace, launch)
    if detail is None:
        raise NotThere(f"This trace holds no launch {launch}.")
    deaths = part("How processes died", {}, launch_deaths, trace)
    return LaunchPage(detail, part("The code", [], code_lines, detail), deaths.get(launch))


def code_lines(detail: LaunchDetail) -> list[tuple[int | None, Line]]:
    """A kernel's definition, a gap, and the lines around the launch: numbered as in the wrapper."""
    if detail.code is None:
        return []
    definition, gap, around = detail.code.partition(f"\n{GAP}\n")
    lines = list(enumerate(highlight(definition, "python"), detail.code_first_line or 1))
    if not gap:
        return [*lines]
    first = max(1, detail.site.line - CONTEXT_LINES)
    return [*lines, (None, [("", GAP)]), *enumerate(highlight(around, "python"), first)]


def graphs_page(trace: Trace, request: Request) -> GraphsPage:
    from stepscope.viewer.graphs.queries.graphs import list_graphs
    from stepscope.viewer.overview.queries.damage import not_recorded

    graphs, offset = list_graphs(trace), request.optional_id("offset") or 0
    missing = [row for row in not_recorded(trace) if row.graph is not None]
    return GraphsPage(graphs[offset : offset + GRAPHS_PER_PAGE], missing, len(graphs), offset, GRAPHS_PER_PAGE)


def graph_page(trace: Trace, request: Request) -> GraphPage:
    from stepscope.viewer.graphs.queries.graphs import graph_detail
    from stepscope.viewer.overview.queries.damage import not_recorded

    graph = request.id("graph")
    detail = graph_detail(trace, graph)
    if detail is None:
        raise NotThere(f"This trace holds no graph {graph}.")
    missing = [row for row in not_recorded(trace) if row.graph == graph]
    return GraphPage(detail, missing, request.number("site"))


def problems_page(trace: Trace, request: Request) -> ProblemsPage:
    from stepscope.viewer.compiles.queries.compiles import list_compiles
    from stepscope.viewer.findings import gaps
    from stepscope.viewer.overview.queries.damage import not_recorded_lines, problems
    from stepscope.viewer.overview.queries.overview import overhead

    compiles = part("Compiles that failed", [], list_compiles, trace)
    failed = [row for row in compiles if row.failure or row.status == "failed"]
    failures = part("Failures of the recorder", None, lambda: overhead(trace).failures)
    missing = [*part("What was not recorded", [], not_recorded_lines, trace), *gaps(trace)]
    return ProblemsPage(problems(trace), missing, failed, failures)


def summary_answer(trace: Trace, request: Request) -> dict[str, Any]:
    from stepscope.viewer.overview.summary import summary

    return summary(trace)


PAGES = (
    *overview_page.PAGES,
    Page("/steps", "steps/list.html", "Steps", StepsPage, steps_page, ("log", "first_step", "last_step")),
    Page("/steps/{step}", "steps/page.html", "Steps", StepPage, step_page, ("log", "launch")),
    Page("/graphs", "graphs/list.html", "Graphs", GraphsPage, graphs_page, ("offset",)),
    Page("/graphs/{graph}", "graphs/page.html", "Graphs", GraphPage, graph_page, ("site",)),
    Page(
        "/graphs/{graph}/memory",
        "memory/graph.html",
        "Memory",
        GraphMemoryPage,
        memory_page.graph_memory_page,
        memory_page.GRAPH_QUERY,
    ),
    Page("/memory", "memory/page.html", "Memory", MemoryOverviewPage, memory_page.memory_page, memory_page.RUN_QUERY),
    Page("/recompute/{recompute}", "memory/recompute.html", "Memory", RecomputePage, memory_page.recompute_page),
    Page("/graphs/{graph}/buffers", "values/buffers.html", "Graphs", BuffersPage, values_page.buffers_page),
    Page("/graphs/{graph}/buffers/{buffer}", "values/buffer.html", "Graphs", BufferPage, values_page.buffer_page),
    Page("/kernels", "values/kernels.html", "Kernels", KernelsPage, values_page.kernels_page),
    Page("/kernels/{kernel}", "values/kernel.html", "Kernels", KernelPage, values_page.kernel_page),
    Page("/values", "values/page.html", "Values", ValuesPage, values_page.values_page, ("log", *values_page.WINDOW)),
    Page("/curves", "values/curve.html", "Values", CurvePage, values_page.curve_page, values_page.CURVE_QUERY),
    *compiles_page.PAGES,
    *summary_page.PAGES,
    *records_page.PAGES,
    *ranks_page.PAGES,
    *search_page.PAGES,
    Page("/problems", "records/problems.html", "Problems", ProblemsPage, problems_page),
)
TWINS = (
    *summary_page.TWINS,
    Twin("/summary.json", Summary, summary_answer),
    *search_page.TWINS,
    Twin("/steps/{step}/timeline.json", Timeline, timeline_page, ("log", "start_ns", "end_ns", "width")),
    Twin("/launches/{launch}.json", LaunchPage, launch_page),
    Twin("/memory/live.json", LiveCurve, memory_page.live_twin, memory_page.LIVE_QUERY),
    Twin("/memory/steps.json", RunCurve, memory_page.run_curve_twin, memory_page.RUN_QUERY),
    *(
        Twin("/index.json" if page.path == "/" else f"{page.path}.json", page.context, page.build, page.query)
        for page in PAGES
    ),
)
