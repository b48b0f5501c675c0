"""Queries the optimizers whose gradients are never set to zero."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_NEVER_CLEARED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, file, line, max(kept) AS kept
    FROM kept_gradients WHERE cleared = 0 AND kept >= ? GROUP BY name, file, line ORDER BY log, name
"""


class NeverCleared(NamedTuple):
    """An optimizer that stepped at a line of the program, in the first log that has it."""

    log: int
    time_unix_ns: int
    name: str
    file: str | None
    line: int | None
    kept: int
    """Number of steps after which the gradients were kept."""


def never_cleared(trace: Trace, least: int) -> list[NeverCleared]:
    """Return the optimizers whose gradients were kept after each of at least `least` steps."""
    return sql.records(NeverCleared, trace, _NEVER_CLEARED, [least])
