"""Queries the optimizers with parameters that had no gradient."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_MISSING = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, steps, parameters, missing, unowned,
           names, sizes, file, line, coalesce(cleared, 0) AS cleared, zero_grad_file, zero_grad_line,
           CASE WHEN checkpointed BETWEEN 1 AND missing THEN checkpointed ELSE 0 END AS checkpointed,
           checkpoint_file, checkpoint_line,
           bool_or(EXISTS (SELECT 1 FROM calls c JOIN graphs g ON g.graph = c.graph
                           WHERE c.log = m.log AND g.phase = 'backward')) AS has_backward
    FROM missing_gradients m GROUP BY ALL ORDER BY log, name
"""


class WithoutGradients(NamedTuple):
    """Parameters of an optimizer that had no gradient in its first steps, in the first log that has them."""

    log: int
    time_unix_ns: int
    name: str
    """The class of the optimizer."""
    steps: int
    parameters: int
    missing: int
    unowned: int
    """The number of these that belong to no module."""
    names: str
    """JSON list of names of the first ones, null if no module has one."""
    sizes: str
    """JSON list of their sizes."""
    file: str | None
    line: int | None
    cleared: int
    """The number of the steps before which `zero_grad` had cleared gradients of these parameters."""
    zero_grad_file: str | None
    zero_grad_line: int | None
    checkpointed: int
    """The number of those without a gradient that run only in reentrant checkpoints without an input that requires
    one."""
    checkpoint_file: str | None
    checkpoint_line: int | None
    has_backward: bool
    """Whether a compiled backward pass has run in one of the logs."""


def without_gradients(trace: Trace) -> list[WithoutGradients]:
    """Return the optimizers with such parameters."""
    return sql.records(WithoutGradients, trace, _MISSING)
