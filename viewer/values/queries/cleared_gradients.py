"""Queries the optimizers whose gradients are cleared before they are used."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CLEARED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, max(steps) AS steps, cleared,
           zero_grad_file, zero_grad_line, file, line
    FROM cleared_gradients WHERE steps >= ? AND steps_without <= steps * ?
    GROUP BY name, cleared, zero_grad_file, zero_grad_line, file, line ORDER BY log, name, cleared, file, line
"""


class Cleared(NamedTuple):
    """An optimizer that stepped at a line of the program, in the first log that has it."""

    log: int
    time_unix_ns: int
    name: str
    steps: int
    """Number of successive steps before each of which unused gradients were cleared as often."""
    cleared: int
    """How often they were cleared before each of them."""
    zero_grad_file: str | None
    zero_grad_line: int | None
    file: str | None
    line: int | None


def cleared_unused(trace: Trace, least: int, most_without: float) -> list[Cleared]:
    """Return the optimizers whose unused gradients were cleared before at least `least` successive steps, and were not
    before at most a share `most_without` of as many steps."""
    return sql.records(Cleared, trace, _CLEARED, [least, most_without])
