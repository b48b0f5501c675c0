"""Collects the problems of the logs for a report."""

from __future__ import annotations

from stepscope.viewer.problems.page import problems_page
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Request


def collect(trace: Trace, contents: Contents) -> None:
    contents.shown["problems"] = problems_page(trace, Request({}, {}))
