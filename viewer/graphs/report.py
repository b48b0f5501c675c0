"""The part of a report about graphs: their pages, and the generated code of some."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.graphs.page import GraphPage, graph_page
from stepscope.viewer.graphs.queries.graphs import list_graphs
from stepscope.viewer.report.contents import Contents, chosen
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.highlight import Line, highlight
from stepscope.viewer.web.addresses import Request
from stepscope.viewer.web.parts import part

MOST_GRAPHS = 24
MOST_CODE_CHARS = 600_000


def collect(trace: Trace, contents: Contents) -> None:
    """Add the pages of graphs, those with findings first, then those with the most launches."""
    named = contents.named_pages()
    graphs = sorted(part("Graphs", [], list_graphs, trace), key=lambda row: -(row.launches or 0))
    pages: list[GraphPage] = []
    for row in chosen(graphs, MOST_GRAPHS, lambda row: f"/graphs/{row.graph}" in named, lambda row: row.graph):
        page = part(f"Graph {row.graph}", None, graph_page, trace, Request({"graph": str(row.graph)}, {}))
        pages += [page] if page else []
    contents.shown["graphs"] = pages
    contents.say_left_out(len(graphs), len(pages), "graphs")


def data(contents: Contents) -> dict[str, Any]:
    """Return the lines of the highlighted source of wrappers, as much as there is room for."""
    found: dict[int, list[Line]] = {}
    room, missing = MOST_CODE_CHARS, 0
    for detail in (page.detail for page in contents.shown["graphs"]):
        if detail.code is None:
            continue
        if len(detail.code) > room:
            missing += 1
            continue
        room -= len(detail.code)
        found[detail.row.graph] = highlight(detail.code, "python")
    if missing:
        contents.left_out.append(f"generated code of {missing:,} graphs")
    return {"wrappers": found}
