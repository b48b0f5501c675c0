"""Queries which memory records exist: graphs by descending peak, and lifetimes of storages."""

from __future__ import annotations

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_PEAKS = """
    WITH measured AS (SELECT graph, max(peak_bytes) AS peak FROM layouts WHERE calls > 0 GROUP BY graph),
    estimated AS (SELECT graph, max(peak_bytes) AS peak FROM schedules GROUP BY graph)
    SELECT coalesce(m.graph, e.graph) AS graph
    FROM measured m FULL JOIN estimated e ON e.graph = m.graph
    ORDER BY coalesce(m.peak, e.peak) DESC, graph
"""


def graphs_by_peak(trace: Trace) -> list[int]:
    """Return the graphs with memory records by descending measured peak, else by descending estimate."""
    return [graph for (graph,) in sql.rows(trace, _PEAKS)]


def has_lifetimes(trace: Trace) -> bool:
    return bool(sql.number(trace, "SELECT count(*) FROM lifetime_logs"))


def lifetime_events(trace: Trace) -> int | None:
    """Return the number of recorded births and deaths of storages; None if no log followed them."""
    found: int | None = sql.number(trace, "SELECT sum(events)::BIGINT FROM lifetime_logs")
    return found
