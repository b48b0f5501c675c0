"""Queries the parameters whose memory an optimizer changes although it does not train them."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SHARED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, parameters, names, others,
           bool_or(is_in_graph) AS is_in_graph, bool_or(is_written) AS is_written, file, line,
           coalesce(are_tensors, false) AS are_tensors
    FROM shared_parameters
    WHERE json_array_length(names) BETWEEN 1 AND parameters AND json_array_length(names) = json_array_length(others)
    GROUP BY name, parameters, names, others, file, line, are_tensors ORDER BY log, file, line, names
"""


class Shared(NamedTuple):
    """An optimizer that trains parameters whose memory others have, in the first log that has it."""

    log: int
    time_unix_ns: int
    name: str
    """The class of the optimizer."""
    parameters: int
    """The number of parameters that no optimizer trains."""
    names: str
    """JSON list of the first parameters that are trained."""
    others: str
    """JSON list of those that are not, in the same order."""
    is_in_graph: bool
    """Whether a captured graph uses two parameters of the same memory."""
    is_written: bool
    """Whether the program wrote to the memory between two steps."""
    file: str | None
    line: int | None
    are_tensors: bool
    """Whether those that are not trained are tensors in containers, and no parameters."""


def shared(trace: Trace) -> list[Shared]:
    """Return the optimizers that train parameters whose memory others have, without records that no recorder writes."""
    return sql.records(Shared, trace, _SHARED)
