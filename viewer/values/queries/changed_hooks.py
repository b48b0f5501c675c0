"""Queries the hooks of modules that changed after the compile."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CHANGED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, min(frame) AS frame, min(call) AS call, module,
           attribute, name, file, line, is_added
    FROM changed_hooks GROUP BY module, attribute, name, file, line, is_added ORDER BY log, time_unix_ns, module, name
"""


class ChangedHook(NamedTuple):
    """A hook that was added or removed after the compile, in the first log that has it."""

    log: int
    time_unix_ns: int
    frame: str
    call: int
    """The call of the frame at which it was seen."""
    module: str
    """By a variable or the class of an outer module."""
    attribute: str
    name: str
    file: str | None
    """The place at which the function begins."""
    line: int | None
    is_added: bool


def changed_hooks(trace: Trace) -> list[ChangedHook]:
    """Return the hooks that changed after the compile."""
    return sql.records(ChangedHook, trace, _CHANGED)
