"""Queries the last known position of a process, from its log or its launch ring."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import launch_text

_COUNTS = """
    SELECT log, time_unix_ns, step, coalesce(launches, 0)
    FROM (SELECT log, max(time_unix_ns) AS time_unix_ns FROM records GROUP BY log)
    LEFT JOIN (SELECT log, max(step) AS step FROM steps GROUP BY log) USING (log)
    LEFT JOIN (SELECT log, count(*) AS launches FROM launches GROUP BY log) USING (log)
"""
_LAUNCH = """
    SELECT l.step, l.launch, l.returned, s.kernel, s.graph, l.site,
           1 + l.launch - (SELECT min(o.launch) FROM launches o WHERE o.log = l.log AND o.step = l.step),
           (SELECT count(*) FROM launches o WHERE o.log = l.log AND o.step = l.step),
           EXISTS (FROM steps t WHERE t.log = l.log AND t.step = l.step AND t.end_ns IS NOT NULL)
    FROM launches l LEFT JOIN sites s ON s.site = l.site
    WHERE l.log = $1 AND ($2 IS NULL OR l.launch = $2)
    ORDER BY l.step DESC, l.returned, l.launch DESC LIMIT 1
"""
_BEFORE = """
    SELECT l.launch, l.step, s.kernel, l.returned,
           1 + l.launch - (SELECT min(o.launch) FROM launches o WHERE o.log = l.log AND o.step = l.step)
    FROM launches l LEFT JOIN sites s ON s.site = l.site
    WHERE l.log = $1 AND l.launch <= $2 AND l.launch <> $4
          AND l.thread = (SELECT thread FROM launches WHERE launch = $2)
    ORDER BY l.launch DESC LIMIT $3
"""


@dataclass(frozen=True)
class LastSeen:
    """The launch of the last step that did not return, else its last launch, or a given launch."""

    time_unix_ns: int | None
    launches: int
    step: int | None
    launch: int | None
    returned: bool | None
    kernel: str | None
    graph: int | None
    site: int | None = None
    ordinal: int | None = None
    """Position of the launch in its step, counted from 1."""
    of: int | None = None
    """Number of recorded launches of the step."""
    step_ended: bool = False

    @property
    def text(self) -> str:
        """Return a text such as ``launch 61 of step 2``."""
        return launch_text(self.launch, self.step, self.ordinal)


@dataclass(frozen=True)
class Before:
    """An earlier launch by the same thread."""

    launch: int
    step: int
    kernel: str | None
    returned: bool
    ordinal: int
    """Position of the launch in its step, counted from 1."""


def last_seen(trace: Trace, log: int, launch: int | None = None) -> LastSeen:
    """Return the last known position in a log, or that of `launch`."""
    time_unix_ns, step, launches = trace.once(_counts).get(log, (None, None, 0))
    row = sql.row(trace, _LAUNCH, [log, launch]) or (step, None, None, None, None)
    return LastSeen(time_unix_ns, launches, *row)


def _counts(trace: Trace) -> dict[int, tuple[int | None, int | None, int]]:
    """Return the time of the last record, the last step and the number of launches of each log."""
    return {log: (time, step, launches) for log, time, step, launches in sql.rows(trace, _COUNTS)}


def ran_before(trace: Trace, log: int, launch: int, most: int, but: int | None) -> list[Before]:
    """Return at most `most` launches of the thread of `launch` up to it, except `but`, latest first."""
    return [Before(*row) for row in sql.rows(trace, _BEFORE, [log, launch, most, -1 if but is None else but])]
