"""Queries the waits for batches of a DataLoader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_WAITS = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns)
    SELECT workers, file, line FROM data_waits w JOIN spans s
      ON w.start_ns < s.end_ns AND w.start_ns + w.duration_ns > s.start_ns
    WHERE w.log = $1 AND w.thread IN (SELECT thread FROM calls WHERE log = $1 AND depth = 0) GROUP BY ALL
    ORDER BY sum(least(w.start_ns + w.duration_ns, s.end_ns) - greatest(w.start_ns, s.start_ns)) DESC LIMIT 1
"""

_SPANS = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns)
    SELECT DISTINCT greatest(w.start_ns, s.start_ns), least(w.start_ns + w.duration_ns, s.end_ns)
    FROM data_waits w JOIN spans s ON w.start_ns < s.end_ns AND w.start_ns + w.duration_ns > s.start_ns
    WHERE w.log = $1 AND w.thread IN (SELECT thread FROM calls WHERE log = $1 AND depth = 0)
"""


class DataWaitRow(NamedTuple):
    """The waits of one place of the program for one kind of loader."""

    workers: int | None
    file: str | None
    line: int | None

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


def longest_waits(trace: Trace, log: int, spans: Sequence[tuple[int, int]]) -> DataWaitRow | None:
    """Return the place at which the program waited longest in all within spans of time; None if it never waited."""
    return sql.record(DataWaitRow, trace, _WAITS, [log, [start for start, _ in spans], [end for _, end in spans]])


def waits_of(trace: Trace, log: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return begin and end of the waits within spans of time (ns)."""
    return sql.rows(trace, _SPANS, [log, [start for start, _ in spans], [end for _, end in spans]])
