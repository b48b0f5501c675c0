"""Queries the optimizers whose steps changed almost nothing, because the dtype of the parameters is too short."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_LOST = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, file, line,
           arg_min(dtype, log) AS dtype, arg_min(parameters, log) AS parameters, arg_min(elements, log) AS elements,
           arg_min(unchanged, log) AS unchanged, arg_min(learning_rate, log) AS learning_rate,
           arg_min(magnitude, log) AS magnitude
    FROM lost_updates GROUP BY name, file, line ORDER BY log, name
"""


class LostUpdate(NamedTuple):
    """An optimizer that stepped at a line of the program, in the first log that has it."""

    log: int
    time_unix_ns: int
    name: str
    file: str | None
    line: int | None
    dtype: str
    parameters: int
    elements: int
    """Elements that had a gradient in each step, and of these the ones that never changed."""
    unchanged: int
    learning_rate: float
    magnitude: float
    """The median of the elements that never changed."""


def lost_updates(trace: Trace) -> list[LostUpdate]:
    """Return the optimizers of which the recorder saw that most updates are lost."""
    return sql.records(LostUpdate, trace, _LOST, [])
