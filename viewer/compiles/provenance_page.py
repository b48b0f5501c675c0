"""Builds the context of the provenance page, which links lines of generated code to lines of graphs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepscope.viewer.compiles.chosen import (
    ATTEMPT,
    ProvenanceGraph,
    chosen_attempt,
    chosen_compile,
    inductor_graphs,
)
from stepscope.viewer.compiles.queries.provenance_panes import ProvenancePanes, provenance_panes
from stepscope.viewer.compiles.queries.stages import attempts_of, units_of
from stepscope.viewer.compiles.rows import CompileRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.parameters import COMPILE_ID, GRAPH, LOG, matching

LINE = re.compile(r"(?:(pre|post|code)-)?(\d{1,9})")


@dataclass(frozen=True)
class ProvenancePage:
    row: CompileRow
    graphs: list[ProvenanceGraph]
    graph: int | None
    panes: ProvenancePanes | None
    """None if Inductor compiled no graph here."""
    line: str | None
    """Chosen line, such as ``code-12``, ``pre-3`` or ``post-7``; None if no line is chosen."""


def provenance_page(trace: Trace, request: Request) -> ProvenancePage:
    detail = chosen_compile(trace, request)
    attempts, attempt_of = attempts_of(trace, detail)
    units = units_of(detail.records, detail.graphs, attempt_of)
    graphs = inductor_graphs(units, chosen_attempt(request, attempts))
    wanted = request.optional_id("graph")
    if wanted is not None and wanted not in [graph.number for graph in graphs]:
        raise NotThere(f"Inductor compiled {len(units)} graphs here, counted from 0; there is no graph {wanted}.")
    if not graphs:
        return ProvenancePage(detail.row, graphs, None, None, None)
    graph = graphs[0].number if wanted is None else wanted
    return ProvenancePage(detail.row, graphs, graph, provenance_panes(trace, detail, units[graph]), _line(request))


def _line(request: Request) -> str | None:
    text = request.text("line")
    found = LINE.fullmatch(text or "")
    if text is not None and not found:
        raise NotThere(f"“{text[:40]}” is not a line; write one as code-12, post-12 or pre-12.")
    return f"{found[1] or 'code'}-{int(found[2])}" if found else None


ROUTES = (
    Page(
        "/compile/{compile_id}/provenance",
        "compiles/provenance.html",
        "Compile",
        ProvenancePage,
        provenance_page,
        (
            COMPILE_ID,
            LOG,
            ATTEMPT,
            GRAPH,
            matching("line", LINE.pattern, "The line to mark, as in code-12, post-12 or pre-12."),
        ),
    ),
)
