"""Collects the problems of the logs for a report."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.overview.problems_page import problems_page
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Request


def collect(trace: Trace, contents: Contents) -> None:
    contents.shown["problems"] = problems_page(trace, Request({}, {}))


def data(_contents: Contents) -> dict[str, Any]:
    """Return nothing, because the page of problems needs no scripts."""
    return {}
