"""Queries the steps in which compiles began, and how long compiles took."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ASKED = """
    SELECT c.log, c.compile_id, c.start_unix_ns, c.duration_ns FROM compiles c
    JOIN (SELECT unnest($logs) AS log, unnest($compiles) AS compile_id) a
      ON a.log = c.log AND a.compile_id = c.compile_id
"""
_STEPS = f"""
    WITH begun AS (
        SELECT s.log, s.step, s.start_ns - g.monotonic_ns + g.unix_ns AS start_unix_ns
        FROM steps s JOIN logs g ON g.log = s.log
    ), asked AS ({_ASKED})
    SELECT a.log, a.compile_id, b.step FROM asked a
    ASOF JOIN begun b ON b.log = a.log AND a.start_unix_ns >= b.start_unix_ns
"""


def steps_of_compiles(trace: Trace, compiles: Sequence[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Return the last step that had begun when each compile began, by (log, compile id); compiles before the first step
    and compiles without a time are left out."""
    return {(log, compile_id): step for log, compile_id, step in sql.rows(trace, _STEPS, _asked(compiles))}


def compile_time(trace: Trace, compiles: Sequence[tuple[int, str]]) -> int | None:
    """Return the duration of the given compiles together in nanoseconds, or None if the log has none of them."""
    took = f"SELECT sum(duration_ns)::BIGINT FROM ({_ASKED})"
    return next((row[0] for row in sql.rows(trace, took, _asked(compiles))), None)


def _asked(compiles: Sequence[tuple[int, str]]) -> dict[str, list[int] | list[str]]:
    return {"logs": [log for log, _ in compiles], "compiles": [compile_id for _, compile_id in compiles]}
