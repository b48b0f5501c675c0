"""Builds the context of the page of problems."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.compiles.queries.compiles import list_compiles
from stepscope.viewer.compiles.rows import CompileRow
from stepscope.viewer.findings import gaps
from stepscope.viewer.overview.queries.damage import not_recorded_lines, problems
from stepscope.viewer.overview.queries.overview import overhead
from stepscope.viewer.overview.rows import NotRecorded, Problem
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Page, Request
from stepscope.viewer.web.parts import part


@dataclass(frozen=True)
class ProblemsPage:
    problems: list[Problem]
    not_recorded: list[NotRecorded]
    failed: list[CompileRow]
    hook_failures: int | None


def problems_page(trace: Trace, request: Request) -> ProblemsPage:
    compiles = part("Compiles that failed", [], list_compiles, trace)
    failed = [row for row in compiles if row.failure or row.status == "failed"]
    failures = part("Failures of the recorder", None, lambda: overhead(trace).failures)
    missing = [*part("What was not recorded", [], not_recorded_lines, trace), *gaps(trace)]
    return ProblemsPage(problems(trace), missing, failed, failures)


ROUTES = (Page("/problems", "problems/page.html", "Problems", ProblemsPage, problems_page),)
