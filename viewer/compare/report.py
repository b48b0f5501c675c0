"""Puts the comparison that was asked for into a report."""

from __future__ import annotations

from stepscope.viewer.compare.compare import compare_opened
from stepscope.viewer.compare.compare import wanted as side
from stepscope.viewer.compare.rows import Wanted
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace


def collect(trace: Trace, contents: Contents) -> None:
    """Compare the trace with the one that the report is against. Raises StepscopeError if that is impossible."""
    contents.shown["comparison"] = None
    if contents.against is None:
        return
    right = side(contents.against)
    with open_trace(right.trace) as other:
        left = Wanted([str(log.path) for log in trace.logs])
        contents.shown["comparison"] = compare_opened((trace, left), (other, right), None)
