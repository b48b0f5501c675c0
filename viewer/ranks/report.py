"""Collects the rank comparisons of a report: both sides of each difference in the findings."""

from __future__ import annotations

from urllib.parse import parse_qsl

from stepscope.viewer.ranks.page import RankDifferencePage, difference_page, ranks_page
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Request
from stepscope.viewer.web.parts import part


def collect(trace: Trace, contents: Contents) -> None:
    contents.shown |= {"ranks": None, "differences": []}
    part("Differences between ranks", None, _collect, trace, contents)


def _collect(trace: Trace, contents: Contents) -> None:
    found = [finding.page for finding in contents.overview.findings if finding.kind == "rank_divergence"]
    differences: list[RankDifferencePage] = contents.shown["differences"]
    for page in dict.fromkeys(found):
        path, _, query = page.partition("?")
        if path == "/ranks/difference":
            differences.append(difference_page(trace, Request({}, dict(parse_qsl(query)))))
    if differences:
        contents.shown["ranks"] = ranks_page(trace, Request({}, {}))
