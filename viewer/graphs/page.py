"""The pages of graphs: the contexts of the templates and the functions that build them."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.graphs.queries.graphs import graph_detail, list_graphs
from stepscope.viewer.graphs.rows import GraphDetail, GraphRow
from stepscope.viewer.overview.queries.damage import not_recorded
from stepscope.viewer.overview.rows import NotRecorded
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.parameters import GRAPH, OFFSET, SITE

GRAPHS_PER_PAGE = 500


@dataclass(frozen=True)
class GraphsPage:
    graphs: list[GraphRow]
    """At most `limit` graphs, from `offset` on."""
    not_recorded: list[NotRecorded]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True)
class GraphPage:
    detail: GraphDetail
    not_recorded: list[NotRecorded]
    site: int | None
    """The launch site in the address of the page."""


def graphs_page(trace: Trace, request: Request) -> GraphsPage:
    graphs, offset = list_graphs(trace), request.optional_id("offset") or 0
    missing = [row for row in not_recorded(trace) if row.graph is not None]
    return GraphsPage(graphs[offset : offset + GRAPHS_PER_PAGE], missing, len(graphs), offset, GRAPHS_PER_PAGE)


def graph_page(trace: Trace, request: Request) -> GraphPage:
    graph = request.id("graph")
    detail = graph_detail(trace, graph)
    if detail is None:
        raise NotThere(f"This trace contains no graph {graph}.")
    missing = [row for row in not_recorded(trace) if row.graph == graph]
    return GraphPage(detail, missing, request.number("site"))


ROUTES = (
    Page("/graphs", "graphs/list.html", "Graphs", GraphsPage, graphs_page, (OFFSET,)),
    Page("/graphs/{graph}", "graphs/page.html", "Graphs", GraphPage, graph_page, (GRAPH, SITE)),
)
