"""Queries the optimizers whose gradients were clipped at the wrong time."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CLIPPED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, arg_min(steps, log) AS steps,
           arg_min(max_norm, log) AS max_norm, arg_min(scale, log) AS scale, clip_file, clip_line, file, line
    FROM misplaced_clipping GROUP BY name, scale IS NULL, clip_file, clip_line, file, line
    ORDER BY log, time_unix_ns, name, line
"""


class Clipped(NamedTuple):
    """An optimizer that stepped at a line of the program, in the first log that has it."""

    log: int
    time_unix_ns: int
    name: str
    steps: int
    """Number of successive steps with such a call."""
    max_norm: float
    scale: float | None
    """By which `GradScaler` divided the gradients after they were clipped; None if they were clipped after the step."""
    clip_file: str | None
    clip_line: int | None
    file: str | None
    line: int | None


def misplaced_clipping(trace: Trace) -> list[Clipped]:
    """Return the optimizers whose gradients were clipped after their steps, or before they were unscaled."""
    return sql.records(Clipped, trace, _CLIPPED)
