"""Collects the compiles that a report contains."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.compiles.queries.compiles import compile_detail, list_compiles
from stepscope.viewer.compiles.queries.graph_breaks import graph_breaks
from stepscope.viewer.compiles.rows import CompileDetail
from stepscope.viewer.findings.evidence import compile_page
from stepscope.viewer.report.contents import Contents, chosen
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.parts import part

MOST_COMPILES = 32


def collect(trace: Trace, contents: Contents) -> None:
    """Add compiles to the report: those with findings first, then the earliest."""
    named = contents.named_pages()
    compiles = part("Compiles", [], list_compiles, trace)
    places = {(row.log, row.compile_id): place for place, row in enumerate(compiles)}
    details: list[CompileDetail] = []
    for row in chosen(
        compiles,
        MOST_COMPILES,
        lambda row: compile_page(row.log, row.compile_id) in named,
        lambda row: places[row.log, row.compile_id],
    ):
        detail = part(f"Compile {row.compile_id}", None, compile_detail, trace, row.log, row.compile_id)
        details += [detail] if detail else []
    contents.shown["compiles"] = details
    contents.say_left_out(len(compiles), len(details), "compiles")
    contents.shown["graph_breaks"] = part("Graph breaks", None, graph_breaks, trace)


def data(contents: Contents) -> dict[str, Any]:
    """Return the compile spans, keyed by log and compile id."""
    return {
        "spans": {f"{detail.row.log} {detail.row.compile_id}": detail.spans for detail in contents.shown["compiles"]}
    }
