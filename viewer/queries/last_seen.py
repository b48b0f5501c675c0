"""The last things that a log holds: for one that ends too early."""

from __future__ import annotations

from dataclasses import dataclass

from viewer.queries import sql
from viewer.store.open import Trace

_COUNTS = """
    SELECT (SELECT max(time_unix_ns) FROM records WHERE log = $1), (SELECT max(step) FROM steps WHERE log = $1),
           (SELECT count(*) FROM launches WHERE log = $1)
"""
_LAUNCH = """
    SELECT l.step, l.launch, l.duration_ns IS NOT NULL, s.kernel, s.graph
    FROM launches l LEFT JOIN sites s ON s.site = l.site
    WHERE l.log = ? ORDER BY l.step DESC, l.duration_ns IS NULL DESC, l.launch DESC LIMIT 1
"""


@dataclass(frozen=True)
class LastSeen:
    """Of the last step the launch that did not return, else the last one."""

    time_unix_ns: int | None
    launches: int
    step: int | None
    launch: int | None
    returned: bool | None
    kernel: str | None
    graph: int | None


def last_seen(trace: Trace, log: int) -> LastSeen:
    """What the log tells last."""
    time_unix_ns, step, launches = sql.row(trace, _COUNTS, [log]) or (None, None, 0)
    row = sql.row(trace, _LAUNCH, [log]) or (step, None, None, None, None)
    return LastSeen(time_unix_ns, launches, *row)
