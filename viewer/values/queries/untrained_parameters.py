"""Queries the parameters with gradients that no optimizer has."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_UNTRAINED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, trained, container, parameters, names,
           file, line, is_registered
    FROM untrained_parameters GROUP BY ALL ORDER BY log, container
"""


class Untrained(NamedTuple):
    """The parameters in a list of a module, or those that it registers, in the first log that has them."""

    log: int
    time_unix_ns: int
    name: str
    """The class of an optimizer that trains other parameters of the module."""
    trained: int
    container: str
    """Dynamo's expression of the list or dictionary, or of the module that has all of the parameters."""
    parameters: int
    names: str
    """JSON list of Dynamo's expressions of the first ones."""
    file: str | None
    line: int | None
    is_registered: bool
    """Whether `Module.parameters` names them."""


def untrained(trace: Trace) -> list[Untrained]:
    """Return the lists and modules of which some parameters belong to no optimizer."""
    return sql.records(Untrained, trace, _UNTRAINED)
