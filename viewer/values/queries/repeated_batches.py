"""Queries the loaders of which each step takes the first batch anew."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_REPEATED = """
    SELECT log, min(time_unix_ns) AS time_unix_ns, batch_size, batches, samples, max(steps) AS steps, file, line
    FROM repeated_batches WHERE batches > 1 GROUP BY ALL ORDER BY log, time_unix_ns, file, line
"""


class RepeatedBatchRow(NamedTuple):
    """A line that begins a loader again in each step."""

    log: int
    time_unix_ns: int
    batch_size: int | None
    """None if samples are not put together to batches."""
    batches: int
    samples: int
    steps: int
    file: str | None
    line: int | None

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


def repeated_batches(trace: Trace) -> list[RepeatedBatchRow]:
    """Return the lines by log."""
    return sql.records(RepeatedBatchRow, trace, _REPEATED)
