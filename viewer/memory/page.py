"""Builds the contexts of the pages of a run's memory and of a recompute mismatch."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.memory.queries.graphs import graphs_by_peak
from stepscope.viewer.memory.queries.growth import growth
from stepscope.viewer.memory.queries.leak_rows import GrowthRow, Leak
from stepscope.viewer.memory.queries.leaks import leaks
from stepscope.viewer.memory.queries.lifecycle_checks import CheckMismatchRow, check_mismatches
from stepscope.viewer.memory.queries.mini_curves import MiniCurve, mini_curves
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.memory.queries.node_places import NodePlace, node_places
from stepscope.viewer.memory.queries.peak_parts import peak_parts
from stepscope.viewer.memory.queries.peak_rows import PeakParts
from stepscope.viewer.memory.queries.recompute import (
    RecomputeDetail,
    RecomputeRow,
    recompute_detail,
    recompute_mismatches,
)
from stepscope.viewer.memory.queries.run import live_curve, run_peaks
from stepscope.viewer.memory.queries.steps import RunCurve, run_curve
from stepscope.viewer.memory.rows import LifetimeMismatchRow, LiveCurve, RunPeak
from stepscope.viewer.overview.queries.runs import list_runs, log_or_first
from stepscope.viewer.overview.rows import RunRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes
from stepscope.viewer.values.queries.buffers import buffer_names
from stepscope.viewer.web.addresses import NotThere, Page, Request, Twin
from stepscope.viewer.web.parameters import DEVICE, END_NS, FIRST_STEP, LAST_STEP, LOG, START_NS, WIDTH, number, text
from stepscope.viewer.web.parts import part

MOST_GRAPHS = 12
MOST_LEAKS = 6
MOST_MISMATCHES = 200


@dataclass(frozen=True)
class MemoryOverviewPage:
    """Context of the page of a run's memory."""

    runs: list[RunRow]
    log: int
    curve: RunCurve | None
    peaks: list[RunPeak]
    peak_parts: list[PeakParts]
    """What the peak of each device of the log consists of."""
    graphs: list[MiniCurve]
    graphs_left: int
    growth: list[GrowthRow] | None
    leaks: list[Leak]
    """The leak in the address first, then those with most bytes per step."""
    leaks_left: int
    is_about_growth: bool
    """Whether the address names a leak, which the page then shows first."""
    mismatches: list[LifetimeMismatchRow]
    checks: list[CheckMismatchRow]
    recompute: list[RecomputeRow]
    missing: list[str]


@dataclass(frozen=True)
class RecomputePage:
    detail: RecomputeDetail
    verdict: str
    nodes: dict[str, NodePlace]
    """Places of the nodes that the final schedule has, too."""
    linked: list[str]
    """Names of the graph's buffers that have a page."""
    previous: int | None
    next: int | None


def memory_page(trace: Trace, request: Request) -> MemoryOverviewPage:
    known, asked = part("Leaks", [], leaks, trace), request.text("growth")
    named = [leak for leak in known if asked in {f"{one.growth.graph}.{one.growth.buffer}" for one in leak.buffers}]
    if asked and not named:
        raise NotThere(f"No leak of this trace is named “{asked[:80]}”; a leak has the name of a graph and a buffer.")
    runs, log = list_runs(trace), named[0].log if named else log_or_first(trace, request.optional_id("log"))
    shown = [*named, *(leak for leak in known if leak.log == log and leak not in named)]
    curve = _curve(trace, request, log)
    minis, left = mini_curves(trace, MOST_GRAPHS)
    checks = check_mismatches(trace)
    return MemoryOverviewPage(
        runs=runs,
        log=log,
        curve=curve,
        peaks=run_peaks(trace),
        peak_parts=part("The parts of the peak", [], peak_parts, trace, log),
        graphs=minis,
        graphs_left=left,
        growth=growth(trace),
        leaks=shown[:MOST_LEAKS],
        leaks_left=max(0, len(shown) - MOST_LEAKS),
        is_about_growth=bool(named),
        mismatches=lifetime_mismatches(trace)[:MOST_MISMATCHES],
        checks=checks[:MOST_MISMATCHES],
        recompute=recompute_mismatches(trace)[:MOST_MISMATCHES],
        missing=[] if curve is not None or checks or graphs_by_peak(trace) else [_why_nothing(trace)],
    )


def _why_nothing(trace: Trace) -> str:
    if all(run.writer != "stepscope" for run in list_runs(trace)):
        return "PyTorch wrote this log without stepscope, so it contains neither schedules nor lifetimes of storages."
    return "The log contains no memory records of a compiled graph, or the recording of lifetimes was disabled."


def _curve(trace: Trace, request: Request, log: int) -> RunCurve | None:
    first, last = request.optional_id("first_step"), request.optional_id("last_step")
    return run_curve(trace, log, first, last, request.text("device"))


def run_curve_twin(trace: Trace, request: Request) -> RunCurve:
    found = _curve(trace, request, log_or_first(trace, request.optional_id("log")))
    if found is None:
        raise NotThere("This log has no lifetimes of storages in these steps.")
    return found


def live_twin(trace: Trace, request: Request) -> LiveCurve:
    """Return a time window of the curve below the timeline."""
    width = max(1, min(request.number("width") or 1600, 10_000))
    window = request.number("start_ns"), request.number("end_ns")
    found = live_curve(trace, log_or_first(trace, request.optional_id("log")), *window, width, request.text("device"))
    if found is None:
        raise NotThere("This log has no lifetimes of storages.")
    return found


def recompute_page(trace: Trace, request: Request) -> RecomputePage:
    asked = request.id("recompute")
    detail = recompute_detail(trace, asked)
    if detail is None:
        raise NotThere(f"This trace contains no recompute mismatch {asked}.")
    known = [row.recompute for row in recompute_mismatches(trace)]
    place = known.index(asked)
    return RecomputePage(
        detail=detail,
        verdict=recompute_verdict(detail.row),
        nodes=_nodes(trace, detail),
        linked=_linked(trace, detail.row),
        previous=known[place - 1] if place else None,
        next=known[place + 1] if place + 1 < len(known) else None,
    )


def _nodes(trace: Trace, detail: RecomputeDetail) -> dict[str, NodePlace]:
    row = detail.row
    return node_places(trace, row.graph, row.subgraph, detail.snode) if row.graph is not None else {}


def _linked(trace: Trace, row: RecomputeRow) -> list[str]:
    return buffer_names(trace, row.graph) if row.graph is not None and row.subgraph is None else []


def recompute_verdict(row: RecomputeRow) -> str:
    """Return sentences that say whether the allowed budget explains the mismatch."""
    after, allowed, before = (
        f"{format_bytes(size)} ({size:,} B)"
        for size in (row.peak_after_bytes, row.allowed_peak_bytes, row.peak_before_bytes)
    )
    over = row.peak_after_bytes - row.allowed_peak_bytes
    if row.is_explained:
        return (
            f"No error: only the peak differs, and the recomputed {after} is within the allowed {allowed}. "
            f"The budget lets the pass add {format_bytes(row.allowed_peak_bytes - row.peak_before_bytes)} to {before}."
        )
    if over > 0:
        return f"Not explained: the recomputed peak of {after} is {over:,} B over the allowed {allowed}."
    return (
        f"Not explained by the budget: the peak of {after} is within the allowed {allowed}, "
        "but the figures that the pass updated are wrong."
    )


RUN = (LOG, FIRST_STEP, LAST_STEP, DEVICE)
GROWTH = text("growth", "A leak by the graph and the name of a buffer, such as 14.buf0; the page shows it first.")
RECOMPUTE = number("recompute", "A mismatch of a recomputation by its id in the index.")
ROUTES = (
    Page("/memory", "memory/page.html", "Memory", MemoryOverviewPage, memory_page, (*RUN, GROWTH)),
    Page("/recompute/{recompute}", "memory/recompute.html", "Memory", RecomputePage, recompute_page, (RECOMPUTE,)),
    Twin("/memory/live.json", LiveCurve, live_twin, (LOG, START_NS, END_NS, WIDTH, DEVICE)),
    Twin("/memory/steps.json", RunCurve, run_curve_twin, RUN),
)
