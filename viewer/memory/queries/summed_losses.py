"""Queries the backward passes of sums of losses each of which could have had a backward pass of its own."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SUMS = """
    SELECT log, time_unix_ns, max(losses) AS losses, file, line FROM summed_losses
    GROUP BY ALL ORDER BY log, losses DESC, time_unix_ns
"""


class SumRow(NamedTuple):
    """A place of the program that begins the backward pass of a sum of losses."""

    log: int
    time_unix_ns: int
    losses: int
    file: str | None
    line: int | None

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


def longest_sums(trace: Trace) -> dict[int, SumRow]:
    """Return the place with most losses of each log."""
    rows = sql.records(SumRow, trace, _SUMS) if sql.has_rows(trace, "summed_losses") else []
    return {row.log: row for row in reversed(rows)}
