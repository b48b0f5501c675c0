"""The pages of graphs: the contexts of the templates and the functions that build them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepscope.viewer.graphs.queries.graphs import graph_detail, list_graphs
from stepscope.viewer.graphs.rows import GraphDetail, GraphRow
from stepscope.viewer.overview.queries.damage import not_recorded
from stepscope.viewer.overview.rows import NotRecorded
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.order import Order, in_order, order_of, order_parameters
from stepscope.viewer.web.parameters import GRAPH, LOG, OFFSET, SITE, TEXT

GRAPHS_PER_PAGE = 500
SORTS: dict[str, Callable[[GraphRow], Any]] = {
    "graph": lambda row: row.graph,
    "compile": lambda row: row.compile_id and [int(number) for number in re.findall(r"\d+", row.compile_id)],
    "phase": lambda row: row.phase,
    "cache": lambda row: row.cached,
    "shapes": lambda row: row.dynamic,
    "sites": lambda row: row.launch_sites,
    "calls": lambda row: row.calls,
    "launches": lambda row: row.launches,
    "duration": lambda row: row.duration_ns,
    "wrapper": lambda row: row.wrapper_key,
}


@dataclass(frozen=True)
class GraphsPage:
    graphs: list[GraphRow]
    """At most `limit` graphs, from `offset` on."""
    not_recorded: list[NotRecorded]
    total: int
    """Number of graphs that match."""
    all_graphs: int
    offset: int
    limit: int
    log: int | None
    text: str | None
    order: Order


@dataclass(frozen=True)
class GraphPage:
    detail: GraphDetail
    not_recorded: list[NotRecorded]
    site: int | None
    """The launch site in the address of the page."""


def graphs_page(trace: Trace, request: Request) -> GraphsPage:
    graphs, offset = list_graphs(trace), request.optional_id("offset") or 0
    log, text, order = request.optional_id("log"), request.text("text"), order_of(request, SORTS, "Graphs")
    found = [row for row in graphs if (log is None or row.log == log) and _holds(row, text)]
    shown = in_order(found, SORTS, order)[offset : offset + GRAPHS_PER_PAGE]
    missing = [row for row in not_recorded(trace) if row.graph is not None]
    return GraphsPage(shown, missing, len(found), len(graphs), offset, GRAPHS_PER_PAGE, log, text, order)


def _holds(row: GraphRow, text: str | None) -> bool:
    held = (f"graph {row.graph}", row.compile_id, row.aot_id, row.phase, row.wrapper_key)
    return text is None or any(text.lower() in part.lower() for part in held if part)


def graph_page(trace: Trace, request: Request) -> GraphPage:
    graph = request.id("graph")
    detail = graph_detail(trace, graph)
    if detail is None:
        raise NotThere(f"This trace contains no graph {graph}.")
    missing = [row for row in not_recorded(trace) if row.graph == graph]
    return GraphPage(detail, missing, request.number("site"))


ROUTES = (
    Page(
        "/graphs", "graphs/list.html", "Graphs", GraphsPage, graphs_page, (LOG, TEXT, *order_parameters(SORTS), OFFSET)
    ),
    Page("/graphs/{graph}", "graphs/page.html", "Graphs", GraphPage, graph_page, (GRAPH, SITE)),
)
