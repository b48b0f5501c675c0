"""Queries which optimizer takes most of the time of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SLOWEST = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns)
    SELECT o.name, o.is_fused, o.file, o.line FROM optimizer_steps o JOIN spans s
      ON o.start_ns >= s.start_ns AND o.start_ns < s.end_ns
    WHERE o.log = $1 AND o.thread IN (SELECT thread FROM calls WHERE log = $1 AND depth = 0) GROUP BY ALL
    ORDER BY sum(o.duration_ns) DESC LIMIT 1
"""


class OptimizerRow(NamedTuple):
    """An optimizer that steps at one line of the program."""

    name: str
    """Its class."""
    is_fused: bool | None
    """Whether one kernel updates all parameters of a group; None if it cannot do that, or if it is unknown."""
    file: str | None
    line: int | None

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


def slowest_optimizer(trace: Trace, log: int, spans: Sequence[tuple[int, int]]) -> OptimizerRow | None:
    """Return the optimizer whose steps within spans of time take longest together, or None if there is none."""
    return sql.record(OptimizerRow, trace, _SLOWEST, [log, [start for start, _ in spans], [end for _, end in spans]])
