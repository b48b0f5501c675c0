"""Queries graphs that are called one call after the other, and whether these calls need the results of earlier ones."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_REPEATED = """
    WITH outermost AS (
        SELECT log, call, local_call, graph, duration_ns, start_ns - lag(start_ns + duration_ns) OVER each AS gap_ns,
               lag(graph) OVER each AS before, lag(local_call) OVER each AS call_before
        FROM calls WHERE depth = 0 AND duration_ns IS NOT NULL AND state <> 'replayed'
        WINDOW each AS (PARTITION BY log, thread ORDER BY start_ns)
    ), measured AS (
        SELECT log, unnest(from_json(before, '["BIGINT"]')) AS call_before,
               unnest(from_json(call, '["BIGINT"]')) AS local_call, unnest(from_json(own_ns, '["BIGINT"]')) AS own_ns,
               unnest(from_json(cpu_ns, '["BIGINT"]')) AS cpu_ns
        FROM call_gaps
    ), repeated AS (
        SELECT o.* EXCLUDE (gap_ns), greatest(0, gap_ns - own_ns) AS gap_ns,
               greatest(0, least(gap_ns, cpu_ns) - own_ns) AS computed_ns
        FROM outermost o JOIN measured m USING (log, call_before, local_call) WHERE o.before = o.graph
    ), often AS (
        SELECT graph FROM repeated JOIN graphs USING (graph) WHERE phase = 'inference'
        GROUP BY graph HAVING count(*) >= $1 - 1
    ), timed AS (
        SELECT l.call, sum(l.duration_ns) AS kernels_ns FROM launches l JOIN sites s ON s.site = l.site
        WHERE s.kind <> 'subgraph' AND s.graph IN (FROM often) GROUP BY l.call
    )
    SELECT r.log, r.graph, count(*) + 1 AS calls, median(r.gap_ns)::BIGINT AS gap_ns,
           median(r.computed_ns)::BIGINT AS computed_ns, median(r.duration_ns)::BIGINT AS call_ns,
           median(t.kernels_ns)::BIGINT AS kernels_ns
    FROM repeated r JOIN timed t ON t.call = r.call WHERE r.graph IN (FROM often) GROUP BY r.log, r.graph
    HAVING calls >= $1
"""
_INPUTS = """
    WITH inputs AS (
        SELECT y.layout, y.calls, s.name, coalesce(k.kind = 'input', false) AS is_known
        FROM layouts y JOIN measured_calls m ON m.call = y.first_call
        JOIN layout_storages s ON s.layout = y.layout AND s.kind = 'input'
        LEFT JOIN measured_calls b ON b.log = y.log AND b.local_call = coalesce(m.local_call - s.calls_back, s.met_in)
        LEFT JOIN layout_storages k ON k.layout = b.layout AND k.storage = s.met_as
        WHERE y.graph = $1
    ), each AS (SELECT layout, calls, bool_and(is_known) AS are_known FROM inputs GROUP BY ALL)
    SELECT coalesce(sum(calls) FILTER (are_known), 0)::BIGINT, EXISTS(
        FROM arguments a JOIN sites s ON s.site = a.site
        WHERE s.graph = $1 AND a.role <> 'in' AND coalesce(a.storage, a.buffer) IN (SELECT name FROM inputs)
    ) FROM each
"""
_LINES = """
    SELECT count(DISTINCT (s.file, s.line)) FROM call_sites s
    JOIN graphs g ON g.log = s.log AND g.local_graph = s.graph WHERE g.graph = ?
"""


class RepeatedCalls(NamedTuple):
    """Calls of a graph of which each follows another one, with the medians of their times."""

    log: int
    graph: int
    calls: int
    gap_ns: int
    """From one call to the next, without the recorder's own time."""
    computed_ns: int
    """The part of this time for which the thread computes."""
    call_ns: int
    kernels_ns: int
    """The part of a call in which kernels run."""

    @property
    def whole_ns(self) -> int:
        """Return the time of a call and of the code before it."""
        return self.call_ns + self.computed_ns

    @property
    def outside_ns(self) -> int:
        """Return the part of this time outside of kernels."""
        return max(0, self.whole_ns - self.kernels_ns)


def repeated_calls(trace: Trace, least: int) -> list[RepeatedCalls]:
    """Return the graphs without gradients that have at least so many such calls."""
    return sql.records(RepeatedCalls, trace, _REPEATED, [least]) if sql.has_rows(trace, "call_gaps") else []


def calls_with_known_inputs(trace: Trace, graph: int) -> int:
    """Return the number of calls of a graph that have no storage but such as earlier calls had as their inputs, too; 0
    if the graph itself writes to its inputs, as to a cache of keys and values."""
    found = sql.rows(trace, _INPUTS, [graph])
    return 0 if not found or found[0][1] else found[0][0]


def is_called_at_one_line(trace: Trace, graph: int) -> bool:
    return bool(sql.number(trace, _LINES, [graph]) == 1)
