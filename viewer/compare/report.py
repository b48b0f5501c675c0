"""Puts the comparison that was asked for into a report."""

from __future__ import annotations

from stepscope.viewer.compare.compare import compare_opened
from stepscope.viewer.compare.compare import wanted as side
from stepscope.viewer.compare.debug_mode import compare_opened_calls, has_debug_log
from stepscope.viewer.compare.rows import Wanted
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace


def collect(trace: Trace, contents: Contents) -> None:
    """Compare the trace with the one that the report is against. Raises StepscopeError if that is impossible."""
    contents.shown["comparison"] = None
    if contents.against is None:
        return
    right, left = side(contents.against), Wanted([str(log.path) for log in trace.logs])
    if has_debug_log(right):
        contents.shown["comparison"] = compare_opened_calls((trace, left), (None, right), None)
        return
    with open_trace(right.trace) as other:
        contents.shown["comparison"] = compare_opened((trace, left), (other, right), None)
