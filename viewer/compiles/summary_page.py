"""Builds the contexts of the pages about the compilation of a whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepscope.viewer.compiles.queries import caches as lookups
from stepscope.viewer.compiles.queries import graph_breaks as breaks
from stepscope.viewer.compiles.queries import recompiles as recompiled
from stepscope.viewer.compiles.queries.caches import Caches, caches
from stepscope.viewer.compiles.queries.compile_time import (
    SORTS,
    CompileTimes,
    Flame,
    SpanTotal,
    compile_times,
    flame,
    span_totals,
)
from stepscope.viewer.compiles.queries.cuda_graphs import CudaGraphs, cuda_graphs
from stepscope.viewer.compiles.queries.draft_export import DraftExport, draft_export
from stepscope.viewer.compiles.queries.graph_breaks import GraphBreaks, graph_breaks, is_break
from stepscope.viewer.compiles.queries.metrics import KINDS, CompileMetrics, compile_metrics
from stepscope.viewer.compiles.queries.recompiles import Recompiles, recompiles
from stepscope.viewer.compiles.queries.vllm import Vllm, vllm
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.overview.rows import RunRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Download, File, NotThere, Page, Request, Twin
from stepscope.viewer.web.csv_file import csv_file
from stepscope.viewer.web.order import Order, order_of, order_parameters
from stepscope.viewer.web.parameters import END_NS, LOG, OFFSET, START_NS, TEXT, WIDTH, number, one_of, text

_SECTION = "Compile"
_FULL_WIDTH = 1600
_MOST_CSV_ROWS = 200_000


@dataclass(frozen=True)
class GraphBreaksPage:
    breaks: GraphBreaks
    runs: list[RunRow]
    log: int | None
    text: str | None
    sort: str


@dataclass(frozen=True)
class RecompilesPage:
    recompiles: Recompiles
    runs: list[RunRow]
    log: int | None
    only_frame: str | None
    """Id of the only frame that is shown; None if all are."""
    text: str | None
    sort: str


@dataclass(frozen=True)
class CachesPage:
    caches: Caches
    runs: list[RunRow]
    log: int | None
    cache: str | None
    state: str | None
    text: str | None
    order: Order


@dataclass(frozen=True)
class CudaGraphsPage:
    cuda_graphs: CudaGraphs


@dataclass(frozen=True)
class MetricsPage:
    metrics: CompileMetrics
    runs: list[RunRow]
    log: int | None


@dataclass(frozen=True)
class CompileTimePage:
    flame: Flame | None
    """None if the log has no compile spans."""
    totals: list[SpanTotal]
    runs: list[RunRow]
    log: int | None
    sort: str
    times: CompileTimes


@dataclass(frozen=True)
class DraftExportPage:
    export: DraftExport
    kind: str | None


@dataclass(frozen=True)
class VllmPage:
    vllm: Vllm | None


def graph_breaks_page(trace: Trace, request: Request) -> GraphBreaksPage:
    log, asked = request.optional_id("log"), request.optional_id("break")
    if asked is not None and not is_break(trace, asked):
        raise NotThere(f"Record {asked} of this trace reports no graph break.")
    wanted, sort = request.text("text"), order_of(request, breaks.ORDERS, "Graph breaks").sort or "breaks"
    found = graph_breaks(trace, log, _offset(request), asked=asked, text=wanted, sort=sort)
    return GraphBreaksPage(found, list_runs(trace), log, wanted, sort)


def recompiles_page(trace: Trace, request: Request) -> RecompilesPage:
    log = request.optional_id("log")
    frame, wanted = request.text("frame"), request.text("text")
    sort = order_of(request, recompiled.ORDERS, "Recompiled frames").sort or "recompiles"
    found = recompiles(trace, log, _offset(request), frame=frame, text=wanted, sort=sort)
    if frame and not wanted and not found.frames:
        raise NotThere(f"No frame “{frame[:40]}” was recompiled in this trace.")
    return RecompilesPage(found, list_runs(trace), log, frame, wanted, sort)


def caches_page(trace: Trace, request: Request) -> CachesPage:
    log, cache, state = request.optional_id("log"), request.text("cache"), request.text("state")
    wanted, order = request.text("text"), order_of(request, lookups.ORDERS, "Lookups")
    found = caches(trace, log, cache, state, wanted, order.sort, order.reverse, _offset(request))
    return CachesPage(found, list_runs(trace), log, cache, state, wanted, order)


def cuda_graphs_page(trace: Trace, request: Request) -> CudaGraphsPage:
    return CudaGraphsPage(cuda_graphs(trace))


def metrics_page(trace: Trace, request: Request) -> MetricsPage:
    return MetricsPage(_metrics(trace, request, 100), list_runs(trace), request.optional_id("log"))


def _metrics(trace: Trace, request: Request, limit: int) -> CompileMetrics:
    kind = request.text("kind")
    if kind is not None and kind not in KINDS:
        raise NotThere(f"“{kind[:40]}” is not a kind of metrics; use one of {', '.join(KINDS)}.")
    return compile_metrics(
        trace,
        (request.text("columns") or "").split(","),
        request.text("sort") or "record",
        request.text("direction") or "asc",
        kind,
        request.optional_id("log"),
        _offset(request) if limit < _MOST_CSV_ROWS else 0,
        limit,
    )


def metrics_csv(trace: Trace, request: Request) -> File:
    """Return the rows of `/metrics` as CSV, with times in ns and sizes in bytes."""
    table = _metrics(trace, request, _MOST_CSV_ROWS)
    units = {"ns": " (ns)", "bytes": " (bytes)"}
    names = [f"{column.name}{units.get(column.unit, '')}" for column in table.columns]
    rows: list[list[Any]] = [["record", "log", "compile_id", "frame", "kind", *names]]
    for row in table.rows:
        cells = [_number(row.numbers.get(one.name)) or row.texts.get(one.name) for one in table.columns]
        rows.append([row.record, row.log, row.compile_id, row.frame, row.kind, *cells])
    return csv_file("metrics.csv", rows)


def _number(value: float | None) -> str | None:
    return None if value is None else str(int(value)) if value == int(value) else repr(value)


def compile_time_page(trace: Trace, request: Request) -> CompileTimePage:
    log, sort = request.optional_id("log"), request.text("sort") or SORTS[0]
    if sort not in SORTS:
        raise NotThere(f"“{sort[:40]}” is not an order; use one of {', '.join(SORTS)}.")
    totals = span_totals(trace, log, sort)
    return CompileTimePage(_flame(trace, request), totals, list_runs(trace), log, sort, compile_times(trace, log))


def flame_twin(trace: Trace, request: Request) -> Flame:
    found = _flame(trace, request)
    if found is None:
        raise NotThere("This trace has no compile spans.")
    return found


def _flame(trace: Trace, request: Request) -> Flame | None:
    width = max(1, min(request.number("width") or _FULL_WIDTH, 10_000))
    return flame(
        trace, request.optional_id("log"), request.optional_id("start_ns"), request.optional_id("end_ns"), width
    )


def draft_export_page(trace: Trace, request: Request) -> DraftExportPage:
    kind = request.text("kind")
    return DraftExportPage(draft_export(trace, kind, _offset(request)), kind)


def vllm_page(trace: Trace, request: Request) -> VllmPage:
    return VllmPage(vllm(trace, request.optional_id("start"), request.optional_id("pass")))


def _offset(request: Request) -> int:
    return request.optional_id("offset") or 0


METRICS = (
    text("columns", "Metrics to show, with commas between their names."),
    text("sort", "The metric by which the rows are sorted, or record, compile_id, frame or kind."),
    one_of("direction", ["asc", "desc"], "The order of the rows."),
    one_of("kind", KINDS, "Only metrics of these compiles."),
    LOG,
    OFFSET,
)
LOOKUPS = (
    LOG,
    text("cache", "Only lookups in this cache."),
    one_of("state", ["hit", "miss", "bypass"], "Only lookups with this outcome."),
    TEXT,
    *order_parameters(lookups.ORDERS),
    OFFSET,
)
SPANS = (LOG, one_of("sort", SORTS, "The column by which spans are sorted."), START_NS, END_NS)
PIECE = (
    number("start", "The record with which a piece of vLLM begins."),
    number("pass", "The record of a pass of vLLM."),
)
BREAKS = (
    LOG,
    TEXT,
    one_of("sort", [*breaks.ORDERS], "What the causes are sorted by: the most, or the first."),
    OFFSET,
    number("break", "The record of a graph break, which the page shows first."),
)
RECOMPILED = (
    LOG,
    TEXT,
    one_of("sort", [*recompiled.ORDERS], "What the frames are sorted by: the most, or the first."),
    OFFSET,
    text("frame", "Only the frame with this id."),
)
ROUTES = (
    Page("/graph-breaks", "compiles/graph_breaks.html", _SECTION, GraphBreaksPage, graph_breaks_page, BREAKS),
    Page("/recompiles", "compiles/recompiles.html", _SECTION, RecompilesPage, recompiles_page, RECOMPILED),
    Page("/caches", "compiles/caches.html", _SECTION, CachesPage, caches_page, LOOKUPS),
    Page("/cuda-graphs", "compiles/cuda_graphs.html", _SECTION, CudaGraphsPage, cuda_graphs_page),
    Page("/metrics", "compiles/metrics.html", _SECTION, MetricsPage, metrics_page, METRICS),
    Page("/compile-time", "compiles/time.html", _SECTION, CompileTimePage, compile_time_page, SPANS),
    Page(
        "/draft-export",
        "compiles/draft_export.html",
        _SECTION,
        DraftExportPage,
        draft_export_page,
        (text("kind", "Only failures of this kind."), OFFSET),
    ),
    Page("/vllm", "compiles/vllm.html", _SECTION, VllmPage, vllm_page, PIECE),
    Twin("/compile-time/spans.json", Flame, flame_twin, (LOG, START_NS, END_NS, WIDTH)),
    Download("/metrics.csv", metrics_csv),
)
