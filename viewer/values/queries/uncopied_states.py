"""Queries the calls of `load_state_dict` that restore nothing."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_UNCOPIED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, module, optimizer,
           arg_min(parameters, log) AS parameters, arg_min(steps, log) AS steps, saved_file, saved_line, file, line
    FROM uncopied_states GROUP BY module, optimizer, saved_file, saved_line, file, line
    ORDER BY log, time_unix_ns, line
"""


class Uncopied(NamedTuple):
    """A call of `load_state_dict` at a line of the program, in the first log that has it."""

    log: int
    time_unix_ns: int
    module: str
    """The class of the module."""
    optimizer: str
    parameters: int
    """The number of parameters that were to be restored and that the optimizer trains."""
    steps: int
    """The number of steps of optimizers since `state_dict` was called."""
    saved_file: str | None
    saved_line: int | None
    file: str | None
    line: int | None


def uncopied_states(trace: Trace) -> list[Uncopied]:
    """Return the calls that got the module's own parameters in place of copies."""
    return sql.records(Uncopied, trace, _UNCOPIED)
