"""Joins the operators that PyTorch's profiler saw with launches, by their thread and time."""

from __future__ import annotations

from stepscope.viewer.steps.rows import LaunchDetail, ProfiledOperatorRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST = 200
# The clocks are aligned to some microseconds, so the middle of an operator counts.
_DURING = """
    SELECT name, start_ns - $start, duration_ns,
           depth - min(depth) OVER () AS depth FROM profiled_operators
    WHERE log = $log AND thread = $thread AND start_ns + duration_ns // 2 BETWEEN $start AND $end
    ORDER BY start_ns, depth LIMIT $most
"""


def profiled_operators(trace: Trace, launch: LaunchDetail) -> list[ProfiledOperatorRow]:
    """Return the operators of a launch in their order, at most `MOST`; none if its step was not profiled."""
    if launch.duration_ns is None or not sql.has_rows(trace, "profiled_operators"):
        return []
    window = {"start": launch.start_ns, "end": launch.start_ns + launch.duration_ns, "most": MOST}
    rows = sql.rows(trace, _DURING, {"log": launch.log, "thread": launch.thread, **window})
    return [ProfiledOperatorRow(*row) for row in rows]
