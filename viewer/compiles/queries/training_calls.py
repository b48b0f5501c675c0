"""Queries the calls of the graphs of each compile in training and in inference, and what put modules into eval mode."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CALLS = """
    SELECT c.log, g.compile_id, g.phase = 'forward' AS trains, min(c.start_ns) AS first_ns, max(c.start_ns) AS last_ns,
           min(c.step) AS first_step, max(c.step) AS last_step,
           count(DISTINCT c.step) FILTER (WHERE s.kind = 'train' AND s.by_what IN ('optimizer', 'user')) AS steps
    FROM calls c JOIN graphs g ON g.graph = c.graph JOIN steps s ON s.log = c.log AND s.step = c.step
    WHERE g.phase IN ('forward', 'inference') AND g.compile_id IS NOT NULL
    GROUP BY ALL ORDER BY c.log, first_ns
"""
_EVAL = """
    SELECT DISTINCT file, line FROM eval_calls WHERE log = $log AND start_ns BETWEEN $after_ns AND $before_ns
"""


class CompileCalls(NamedTuple):
    """The calls of the graphs of one compile that run without a backward pass, or with one that follows."""

    log: int
    compile_id: str
    trains: bool
    """Whether a backward pass may follow."""
    first_ns: int
    last_ns: int
    first_step: int
    last_step: int
    steps: int
    """Number of training steps with such calls that an optimizer or the program ended."""

    @property
    def frame_id(self) -> str:
        return self.compile_id.rsplit("/", 1)[0]


def calls_of_compiles(trace: Trace) -> list[CompileCalls]:
    """Return the calls of all compiles, in the order in which they began."""
    return sql.records(CompileCalls, trace, _CALLS)


def eval_line(trace: Trace, log: int, after_ns: int, before_ns: int) -> SourceLine | None:
    """Return the only line that put a module into eval mode between two times, or None if there is no such line."""
    found = sql.rows(trace, _EVAL, {"log": log, "after_ns": after_ns, "before_ns": before_ns})
    return line_at(*found[0]) if len(found) == 1 else None
