"""From an address to the context of its page: which queries a page asks."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from viewer import compile_pages, compile_run_pages, memory_pages, rank_pages, record_pages, search_pages, value_pages
from viewer.addresses import NotThere, Page, Request, Twin
from viewer.contexts import (
    BufferPage,
    BuffersPage,
    CurvePage,
    FindingLink,
    Frame,
    GraphMemoryPage,
    GraphPage,
    GraphsPage,
    KernelPage,
    KernelsPage,
    LaunchPage,
    MemoryOverviewPage,
    OverviewPage,
    ProblemsPage,
    RecomputePage,
    StepPage,
    StepsPage,
    ValuesPage,
)
from viewer.highlight import Line, highlight
from viewer.queries.kernel_code import CONTEXT_LINES
from viewer.queries.memory_steps import RunCurve
from viewer.queries.rows import LaunchDetail, Overview, RunRow, Timeline
from viewer.queries.rows_of_memory import LiveCurve

if TYPE_CHECKING:
    from viewer.store.open import Trace

MOST_FINDING_LINKS = 200
GAP = "…"
"""The line that stands for what `kernel_code.cut` leaves out."""
MOST_MINI_CURVES = 6
MOST_FINDINGS = 50
GRAPHS_PER_PAGE = 500
FULL_WIDTH = 1600
"""Bins of the first picture of a step: about one per pixel of a wide screen."""


def frame(overview: Overview) -> Frame:
    from tracer._version import __version__

    cost = overview.overhead
    share = cost.hook_ns / cost.wall_ns if cost.hook_ns is not None and cost.wall_ns else None
    return Frame(
        runs=overview.runs,
        facts=run_facts(overview),
        skipped=sum(overview.skipped.values()),
        not_recorded=len(overview.not_recorded),
        recorder_cost=share,
        index_bytes=overview.index_bytes,
        version=__version__,
        counts=overview.counts,
        findings=[FindingLink(row.title, row.severity, row.page) for row in overview.findings[:MOST_FINDING_LINKS]],
    )


def run_facts(overview: Overview) -> list[str]:
    """The run in a line: what, which ranks, with what torch, where, how much."""
    runs = overview.runs
    if not runs:
        return []
    first = runs[0]
    facts = [script_name(first)]
    if len(runs) > 1:
        facts.append(f"{len(runs)} logs")
    elif first.rank is not None:
        facts.append(f"rank {first.rank}" + (f"/{first.world_size}" if first.world_size else ""))
    if first.torch:
        facts.append(f"torch {first.torch}")
    facts += first.devices[:2]
    if overview.counts.steps:
        facts.append(f"{overview.counts.steps:,} step{'s' if overview.counts.steps != 1 else ''}")
    facts.append(f"level {first.level}" if first.level else "TORCH_TRACE log")
    return facts


def script_name(run: RunRow) -> str:
    """What ran: ``train.py``, ``-m package.module``; for a log that does not say, the log's own name."""
    argv = run.argv
    if "-m" in argv[:-1]:
        return f"-m {argv[argv.index('-m') + 1]}"
    script = next((part for part in argv if part.endswith(".py")), None) or (argv[0] if argv else run.path)
    return script.replace("\\", "/").rsplit("/", 1)[-1]


def overview_page(trace: Trace, request: Request) -> OverviewPage:
    from viewer.queries.overview import overview

    found = overview(trace)
    shown = len(found.findings) if request.text("findings") == "all" else MOST_FINDINGS
    return OverviewPage(found, *memory_pages.mini_curves(trace, MOST_MINI_CURVES), shown)


def steps_page(trace: Trace, request: Request) -> StepsPage:
    from viewer.queries.runs import list_runs
    from viewer.queries.steps import list_steps

    log = request.optional_id("log")
    return StepsPage(list_runs(trace), log, list_steps(trace, log), memory_pages.run_curve_page(trace, request))


def step_page(trace: Trace, request: Request) -> StepPage:
    from viewer.queries.steps import list_steps

    timeline = timeline_page(trace, request)
    steps = list_steps(trace, timeline.log)
    row = next(row for row in steps if row.step == timeline.step)
    launch = request.number("launch")
    shown = None if launch is None else launch_page_of(trace, launch)
    if shown is not None and (shown.launch.log, shown.launch.step) != (row.log, row.step):
        raise NotThere(
            f"Launch {launch} is not in step {row.step} but in step {shown.launch.step} of log {shown.launch.log}."
        )
    return StepPage(row, steps, timeline, shown, live_page(trace, timeline))


def live_page(trace: Trace, timeline: Timeline, width: int = FULL_WIDTH) -> LiveCurve | None:
    """Live bytes in the window of a timeline."""
    from viewer.queries.memory_run import live_curve

    return live_curve(trace, timeline.log, timeline.window_start_ns, timeline.window_end_ns, width)


def timeline_page(trace: Trace, request: Request) -> Timeline:
    from viewer.queries.steps import timeline

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
    from viewer.findings.launch_deaths import launch_deaths
    from viewer.queries.launches import launch_detail

    detail = launch_detail(trace, launch)
    if detail is None:
        raise NotThere(f"This trace holds no launch {launch}.")
    return LaunchPage(detail, code_lines(detail), launch_deaths(trace).get(launch))


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
    from viewer.queries.damage import not_recorded
    from viewer.queries.graphs import list_graphs

    graphs, offset = list_graphs(trace), request.optional_id("offset") or 0
    missing = [row for row in not_recorded(trace) if row.graph is not None]
    return GraphsPage(graphs[offset : offset + GRAPHS_PER_PAGE], missing, len(graphs), offset, GRAPHS_PER_PAGE)


def graph_page(trace: Trace, request: Request) -> GraphPage:
    from viewer.queries.damage import not_recorded
    from viewer.queries.graphs import graph_detail

    graph = request.id("graph")
    detail = graph_detail(trace, graph)
    if detail is None:
        raise NotThere(f"This trace holds no graph {graph}.")
    missing = [row for row in not_recorded(trace) if row.graph == graph]
    return GraphPage(detail, missing, request.number("site"))


def problems_page(trace: Trace, request: Request) -> ProblemsPage:
    from viewer.queries.compiles import list_compiles
    from viewer.queries.damage import not_recorded, problems
    from viewer.queries.overview import overhead

    failed = [row for row in list_compiles(trace) if row.failure or row.status == "failed"]
    return ProblemsPage(problems(trace), not_recorded(trace), failed, overhead(trace).failures)


def summary_answer(trace: Trace, request: Request) -> dict[str, Any]:
    from viewer.summary import summary

    return summary(trace)


PAGES = (
    Page("/", "overview.html", "Overview", OverviewPage, overview_page, ("findings",)),
    Page("/steps", "steps.html", "Steps", StepsPage, steps_page, ("log", "first_step", "last_step")),
    Page("/steps/{step}", "step.html", "Steps", StepPage, step_page, ("log", "launch")),
    Page("/graphs", "graphs.html", "Graphs", GraphsPage, graphs_page, ("offset",)),
    Page("/graphs/{graph}", "graph.html", "Graphs", GraphPage, graph_page, ("site",)),
    Page(
        "/graphs/{graph}/memory",
        "graph_memory.html",
        "Memory",
        GraphMemoryPage,
        memory_pages.graph_memory_page,
        memory_pages.GRAPH_QUERY,
    ),
    Page("/memory", "memory.html", "Memory", MemoryOverviewPage, memory_pages.memory_page, memory_pages.RUN_QUERY),
    Page("/recompute/{recompute}", "recompute.html", "Memory", RecomputePage, memory_pages.recompute_page),
    Page("/graphs/{graph}/buffers", "buffers.html", "Graphs", BuffersPage, value_pages.buffers_page),
    Page("/graphs/{graph}/buffers/{buffer}", "buffer.html", "Graphs", BufferPage, value_pages.buffer_page),
    Page("/kernels", "kernels.html", "Kernels", KernelsPage, value_pages.kernels_page),
    Page("/kernels/{kernel}", "kernel.html", "Kernels", KernelPage, value_pages.kernel_page),
    Page("/values", "values.html", "Values", ValuesPage, value_pages.values_page, ("log", *value_pages.WINDOW)),
    Page("/curves", "curve.html", "Values", CurvePage, value_pages.curve_page, value_pages.CURVE_QUERY),
    *compile_pages.PAGES,
    *compile_run_pages.PAGES,
    *record_pages.PAGES,
    *rank_pages.PAGES,
    *search_pages.PAGES,
    Page("/problems", "problems.html", "Problems", ProblemsPage, problems_page),
)
TWINS = (
    *compile_run_pages.TWINS,
    Twin("/summary.json", dict, summary_answer),
    *search_pages.TWINS,
    Twin("/steps/{step}/timeline.json", Timeline, timeline_page, ("log", "start_ns", "end_ns", "width")),
    Twin("/launches/{launch}.json", LaunchPage, launch_page),
    Twin("/memory/live.json", LiveCurve, memory_pages.live_twin, memory_pages.LIVE_QUERY),
    Twin("/memory/steps.json", RunCurve, memory_pages.run_curve_twin, memory_pages.RUN_QUERY),
    *(
        Twin("/index.json" if page.path == "/" else f"{page.path}.json", page.context, page.build, page.query)
        for page in PAGES
    ),
)


def context_of(page: Any) -> dict[str, Any]:
    """The fields of a page by name: what its template may use."""
    return {field.name: getattr(page, field.name) for field in fields(page)}
