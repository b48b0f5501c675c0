"""Queries the functions that a program registers as hooks in each step."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_PILED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, attribute, name, file, line,
           arg_min(owner, log) AS owner, is_parameter, arg_min(owners, log) AS owners, arg_min(hooks, log) AS hooks,
           arg_min(step, log) AS step
    FROM piled_hooks GROUP BY attribute, name, file, line, is_parameter ORDER BY log, time_unix_ns, name
"""


class PiledHook(NamedTuple):
    """A function that is registered as a hook in each step, in the first log that has it."""

    log: int
    time_unix_ns: int
    attribute: str
    name: str
    file: str | None
    """The place at which the function begins."""
    line: int | None
    owner: str
    """The first parameter or module with the hooks."""
    is_parameter: bool
    owners: int
    hooks: int
    """The number of hooks that it had before the step."""
    step: int


def piled_hooks(trace: Trace) -> list[PiledHook]:
    """Return the functions that are registered in each step."""
    return sql.records(PiledHook, trace, _PILED)
