"""Queries the waits for batches of a DataLoader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_WAITS = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns),
    waits AS (
        SELECT w.*, least(w.start_ns + w.duration_ns, s.end_ns) - greatest(w.start_ns, s.start_ns) AS within_ns
        FROM data_waits w JOIN spans s ON w.start_ns < s.end_ns AND w.start_ns + w.duration_ns > s.start_ns
        WHERE w.log = $1 AND w.thread IN (SELECT thread FROM calls WHERE log = $1 AND depth = 0)
    )
    SELECT workers, file, line,
           coalesce(sum(within_ns) FILTER (WHERE begins IS NOT NULL) > 0.5 * sum(within_ns), false) AS are_of_restarts
    FROM waits GROUP BY workers, file, line ORDER BY sum(within_ns) DESC LIMIT 1
"""
_SPANS = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns)
    SELECT DISTINCT greatest(w.start_ns, s.start_ns), least(w.start_ns + w.duration_ns, s.end_ns)
    FROM data_waits w JOIN spans s ON w.start_ns < s.end_ns AND w.start_ns + w.duration_ns > s.start_ns
    WHERE w.log = $1 AND w.thread IN (SELECT thread FROM calls WHERE log = $1 AND depth = 0)
"""

_RESTARTS = """
    WITH ran AS (
        SELECT log, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
               max(end_ns) - min(start_ns) - coalesce(sum(compile_ns), 0) AS ran_ns
        FROM steps GROUP BY log
    )
    SELECT w.log, w.workers, w.file, w.line,
           sum(least(w.duration_ns, ran.end_ns - w.start_ns))::BIGINT AS waited_ns,
           greatest(countif(w.begins = 'workers'), countif(w.begins = 'batch')) AS restarts,
           any_value(ran.ran_ns)::BIGINT AS ran_ns
    FROM data_waits w JOIN ran ON ran.log = w.log AND w.start_ns > ran.start_ns AND w.start_ns < ran.end_ns
    WHERE w.begins IS NOT NULL AND w.thread IN (SELECT thread FROM calls c WHERE c.log = w.log AND c.depth = 0)
    GROUP BY w.log, w.workers, w.file, w.line HAVING waited_ns <= ran_ns ORDER BY w.log, waited_ns DESC
"""


class Restarts(NamedTuple):
    """How often, after the first step had begun, a place of the program started the workers of a loader."""

    log: int
    workers: int
    file: str | None
    line: int | None
    waited_ns: int
    """The time in which they were started and made their first batches."""
    restarts: int
    ran_ns: int
    """The time from the first step to the last one, without the compiles of steps."""

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


class DataWaitRow(NamedTuple):
    """The waits of one place of the program for one kind of loader."""

    workers: int | None
    file: str | None
    line: int | None
    are_of_restarts: bool
    """Whether most of the time went to workers that had just been started."""

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


def longest_waits(trace: Trace, log: int, spans: Sequence[tuple[int, int]]) -> DataWaitRow | None:
    """Return the place at which the program waited longest in all within spans of time; None if it never waited."""
    return sql.record(DataWaitRow, trace, _WAITS, [log, [start for start, _ in spans], [end for _, end in spans]])


def waits_of(trace: Trace, log: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return begin and end of the waits within spans of time (ns)."""
    return sql.rows(trace, _SPANS, [log, [start for start, _ in spans], [end for _, end in spans]])


def restarts_of_workers(trace: Trace) -> list[Restarts]:
    """Return the places that started workers in a thread which calls graphs, by log, the longest waits first."""
    return sql.records(Restarts, trace, _RESTARTS)
