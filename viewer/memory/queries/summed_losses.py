"""Queries the backward passes of sums of losses each of which could have had a backward pass of its own."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.memory.rows import RunPeak
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SUMS = """
    SELECT log, time_unix_ns, max(losses) AS losses, file, line FROM summed_losses
    GROUP BY ALL ORDER BY log, losses DESC, time_unix_ns
"""
_SAVED = """
    SELECT max(calls)::BIGINT FROM (
        SELECT count(DISTINCT v.call) AS calls FROM survivors v JOIN layouts l USING (layout)
        WHERE v.log = ? AND v.device = ? AND v.made AND v.met_by_backward
          AND v.born_ns <= ? AND (v.died_ns IS NULL OR v.died_ns > ?)
        GROUP BY l.graph
    )
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


def saved_calls(trace: Trace, peak: RunPeak) -> int:
    """Return how many calls of one forward graph have tensors at a peak that they saved for the backward pass."""
    ((calls,),) = sql.rows(trace, _SAVED, [peak.log, peak.device, peak.ns, peak.ns])
    return calls or 0


def longest_sums(trace: Trace) -> dict[int, SumRow]:
    """Return the place with most losses of each log."""
    rows = sql.records(SumRow, trace, _SUMS) if sql.has_rows(trace, "summed_losses") else []
    return {row.log: row for row in reversed(rows)}
