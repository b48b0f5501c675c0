"""From an address to the context of a page about compilation over a whole run."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from stepscope.viewer.compiles.queries.compile_time import Flame
from stepscope.viewer.compiles.summary_contexts import (
    CachesPage,
    CompileTimePage,
    CudaGraphsPage,
    DraftExportPage,
    GraphBreaksPage,
    MetricsPage,
    RecompilesPage,
    VllmPage,
)
from stepscope.viewer.web.addresses import NotThere, Page, Request, Twin

if TYPE_CHECKING:
    from stepscope.viewer.compiles.queries.metrics import CompileMetrics
    from stepscope.viewer.store.trace import Trace

METRICS_QUERY = ("columns", "sort", "direction", "kind", "log", "offset")
_SECTION = "Compile"
_FULL_WIDTH = 1600
_MOST_CSV_ROWS = 200_000


def graph_breaks_page(trace: Trace, request: Request) -> GraphBreaksPage:
    from stepscope.viewer.compiles.queries.graph_breaks import graph_breaks
    from stepscope.viewer.overview.queries.runs import list_runs

    log = request.optional_id("log")
    return GraphBreaksPage(graph_breaks(trace, log, _offset(request)), list_runs(trace), log)


def recompiles_page(trace: Trace, request: Request) -> RecompilesPage:
    from stepscope.viewer.compiles.queries.recompiles import recompiles
    from stepscope.viewer.overview.queries.runs import list_runs

    log = request.optional_id("log")
    return RecompilesPage(recompiles(trace, log, _offset(request)), list_runs(trace), log)


def caches_page(trace: Trace, request: Request) -> CachesPage:
    from stepscope.viewer.compiles.queries.caches import caches
    from stepscope.viewer.overview.queries.runs import list_runs

    log, cache, state = request.optional_id("log"), request.text("cache"), request.text("state")
    return CachesPage(caches(trace, log, cache, state, _offset(request)), list_runs(trace), log, cache, state)


def cuda_graphs_page(trace: Trace, request: Request) -> CudaGraphsPage:
    from stepscope.viewer.compiles.queries.cuda_graphs import cuda_graphs

    return CudaGraphsPage(cuda_graphs(trace))


def metrics_page(trace: Trace, request: Request) -> MetricsPage:
    from stepscope.viewer.overview.queries.runs import list_runs

    return MetricsPage(_metrics(trace, request, 100), list_runs(trace), request.optional_id("log"))


def _metrics(trace: Trace, request: Request, limit: int) -> CompileMetrics:
    from stepscope.viewer.compiles.queries.metrics import KINDS, compile_metrics

    kind = request.text("kind")
    if kind is not None and kind not in KINDS:
        raise NotThere(f"“{kind[:40]}” is no kind of metrics: it must be one of {', '.join(KINDS)}.")
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


def metrics_csv(trace: Trace, request: Request) -> str:
    """The whole table that `/metrics` shows a page of: times in ns, sizes in bytes."""
    table = _metrics(trace, request, _MOST_CSV_ROWS)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    units = {"ns": " (ns)", "bytes": " (bytes)"}
    names = [f"{column.name}{units.get(column.unit, '')}" for column in table.columns]
    writer.writerow(["record", "log", "compile_id", "frame", "kind", *names])
    for row in table.rows:
        cells = [_number(row.numbers.get(one.name)) or row.texts.get(one.name) for one in table.columns]
        writer.writerow([_cell(cell) for cell in (row.record, row.log, row.compile_id, row.frame, row.kind, *cells)])
    return out.getvalue()


def _number(value: float | None) -> str | None:
    return None if value is None else str(int(value)) if value == int(value) else repr(value)


def _cell(value: Any) -> str:
    """Text that a spreadsheet would take for a formula is marked as text."""
    text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str) and text[:1] in "=+-@\t\r" and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text[1:].replace(".", "", 1).isdecimal()


def compile_time_page(trace: Trace, request: Request) -> CompileTimePage:
    from stepscope.viewer.compiles.queries.compile_time import SORTS, span_totals
    from stepscope.viewer.overview.queries.runs import list_runs

    log, sort = request.optional_id("log"), request.text("sort") or SORTS[0]
    if sort not in SORTS:
        raise NotThere(f"“{sort[:40]}” is no order: it must be one of {', '.join(SORTS)}.")
    return CompileTimePage(_flame(trace, request), span_totals(trace, log, sort), list_runs(trace), log, sort)


def flame_twin(trace: Trace, request: Request) -> Flame:
    found = _flame(trace, request)
    if found is None:
        raise NotThere("This trace has no compile spans.")
    return found


def _flame(trace: Trace, request: Request) -> Flame | None:
    from stepscope.viewer.compiles.queries.compile_time import flame

    width = max(1, min(request.number("width") or _FULL_WIDTH, 10_000))
    return flame(
        trace, request.optional_id("log"), request.optional_id("start_ns"), request.optional_id("end_ns"), width
    )


def draft_export_page(trace: Trace, request: Request) -> DraftExportPage:
    from stepscope.viewer.compiles.queries.draft_export import draft_export

    kind = request.text("kind")
    return DraftExportPage(draft_export(trace, kind, _offset(request)), kind)


def vllm_page(trace: Trace, request: Request) -> VllmPage:
    from stepscope.viewer.compiles.queries.vllm import vllm

    return VllmPage(vllm(trace, request.optional_id("start"), request.optional_id("pass")))


def _offset(request: Request) -> int:
    return request.optional_id("offset") or 0


PAGES = (
    Page(
        "/graph-breaks", "compiles/graph_breaks.html", _SECTION, GraphBreaksPage, graph_breaks_page, ("log", "offset")
    ),
    Page("/recompiles", "compiles/recompiles.html", _SECTION, RecompilesPage, recompiles_page, ("log", "offset")),
    Page("/caches", "compiles/caches.html", _SECTION, CachesPage, caches_page, ("log", "cache", "state", "offset")),
    Page("/cuda-graphs", "compiles/cuda_graphs.html", _SECTION, CudaGraphsPage, cuda_graphs_page),
    Page("/metrics", "compiles/metrics.html", _SECTION, MetricsPage, metrics_page, METRICS_QUERY),
    Page(
        "/compile-time",
        "compiles/time.html",
        _SECTION,
        CompileTimePage,
        compile_time_page,
        ("log", "sort", "start_ns", "end_ns"),
    ),
    Page(
        "/draft-export", "compiles/draft_export.html", _SECTION, DraftExportPage, draft_export_page, ("kind", "offset")
    ),
    Page("/vllm", "compiles/vllm.html", _SECTION, VllmPage, vllm_page, ("start", "pass")),
)
TWINS = (Twin("/compile-time/spans.json", Flame, flame_twin, ("log", "start_ns", "end_ns", "width")),)
