"""Builds the context of the first page."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.memory.queries.mini_curves import MiniCurve, mini_curves
from stepscope.viewer.overview.queries.overview import first_page, with_time
from stepscope.viewer.overview.rows import Overview
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Page, Request
from stepscope.viewer.web.parameters import one_of
from stepscope.viewer.web.parts import part

MOST_MINI_CURVES = 6
MOST_FINDINGS = 50
FINDINGS = one_of("findings", ["all"], "Show all findings, not the first ones only.")


@dataclass(frozen=True)
class OverviewPage:
    overview: Overview
    memory: list[MiniCurve]
    """Curves of the graphs with the highest peaks."""
    memory_left: int
    """Number of graphs whose curves are left out."""
    shown_findings: int
    """Maximum number of groups of findings to show, most severe first."""


def overview_page(trace: Trace, request: Request) -> OverviewPage:
    found = with_time(trace, first_page(trace))
    shown = len(found.findings) if request.text("findings") == "all" else MOST_FINDINGS
    nothing: tuple[list[MiniCurve], int] = ([], 0)
    return OverviewPage(found, *part("Memory", nothing, mini_curves, trace, MOST_MINI_CURVES), shown)


ROUTES = (Page("/", "overview/page.html", "Overview", OverviewPage, overview_page, (FINDINGS,)),)
