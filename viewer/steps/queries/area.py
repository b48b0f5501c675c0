"""Adds up the launches of a step, or of a span of time in it, by launch site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import step_row
from stepscope.viewer.steps.rows import AreaSums, SiteSum
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SUMS = """
    WITH inside AS (
        SELECT l.site, count(*) AS launches, count(l.duration_ns) AS timed,
               sum(least(l.start_ns + l.duration_ns, $stop) - greatest(l.start_ns, $start)) AS duration_ns,
               sum(l.device_duration_ns) AS device_duration_ns
        FROM launches l
        WHERE l.log = $log AND l.step = $step AND l.start_ns <= $stop
          AND CASE WHEN l.duration_ns IS NULL THEN NOT l.returned OR l.start_ns >= $start
                   ELSE l.start_ns + l.duration_ns >= $start END
        GROUP BY l.site
    )
    SELECT i.*, s.kernel, s.kind, s.stacks AS lines FROM inside i JOIN sites s ON s.site = i.site
    ORDER BY i.duration_ns DESC NULLS LAST, i.site
"""


def area_sums(
    trace: Trace, log: int, step: int, start_ns: int | None = None, end_ns: int | None = None
) -> AreaSums | None:
    """Return the sums of a span of a step (monotonic ns), or of all of it; None if there is no such step.

    A launch that lies partly in the span counts as one launch, with the part of its time that is inside."""
    row = step_row(trace, log, step)
    if row is None:
        return None
    start = row.start_ns if start_ns is None else start_ns
    stop = max(start, (1 << 62) if end_ns is None else end_ns)
    found = sql.records(SiteSum, trace, _SUMS, {"log": log, "step": step, "start": start, "stop": stop})
    return AreaSums(log, step, start_ns, end_ns, [replace(site, lines=_lines(site.lines)) for site in found])


def _lines(stacks: Any) -> list[SourceLine]:
    """Return the distinct innermost lines of a site's stacks, which are given as JSON."""
    lines = [SourceLine(**stack[-1]) for stack in sql.json_value(stacks) or () if stack]
    return list({(line.file, line.line): line for line in lines}.values())
