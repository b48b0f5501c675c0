"""Queries which optimizer that is not fused takes most of the time of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SLOWEST = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns)
    SELECT o.name, o.is_fused, o.file, o.line, sum(o.duration_ns) / sum(sum(o.duration_ns)) OVER () AS share
    FROM optimizer_steps o ASOF JOIN spans s ON o.start_ns >= s.start_ns
    WHERE o.log = $1 AND o.start_ns < s.end_ns AND o.thread IN (SELECT thread FROM calls WHERE log = $1 AND depth = 0)
    GROUP BY o.name, o.is_fused, o.file, o.line QUALIFY o.is_fused IS NOT true ORDER BY share DESC LIMIT 1
"""


class OptimizerRow(NamedTuple):
    """An optimizer that steps at one line of the program."""

    name: str
    """Its class."""
    is_fused: bool | None
    """False if one kernel could update all parameters of a group; None if it cannot do that, or if it is unknown."""
    file: str | None
    line: int | None
    share: float
    """Its share of the time that all optimizers take."""

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


def slowest_optimizer(trace: Trace, log: int, spans: Sequence[tuple[int, int]]) -> OptimizerRow | None:
    """Return the optimizer whose steps within spans of time take longest together, of those that are not fused; None if
    there is none."""
    return sql.record(OptimizerRow, trace, _SLOWEST, [log, [start for start, _ in spans], [end for _, end in spans]])
