"""Queries the optimizers that got gradients which are zero, or too small for float16."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ZERO = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, looked, parameters, zero, names,
           elements, zero_elements, tiny_elements, file, line,
           bool_or(EXISTS (SELECT 1 FROM tensors t WHERE t.log = z.log AND t.dtype = 'float16')) AS has_float16
    FROM zero_gradients z
    WHERE json_array_length(looked) > 0 AND zero >= 0
      AND (tiny_elements = 0
           OR (tiny_elements > 0 AND zero_elements >= 0 AND tiny_elements <= elements - zero_elements))
    GROUP BY ALL ORDER BY log, name
"""


class WithZeroGradients(NamedTuple):
    """Gradients of an optimizer that were zero or tiny in each of some steps, in the first log that has them."""

    log: int
    time_unix_ns: int
    name: str
    """The class of the optimizer."""
    looked: str
    """JSON list of its steps, counted from 1, before which the gradients were looked at."""
    parameters: int
    """The number of parameters with a gradient."""
    zero: int
    """The number of those whose gradients were zero in each look."""
    names: str
    """JSON list of names of the first ones, null if no module has one."""
    elements: int
    zero_elements: int
    tiny_elements: int
    """The number of elements that are subnormal numbers of float16."""
    file: str | None
    line: int | None
    has_float16: bool
    """Whether compiled code in one of the logs computes with float16."""


def zero_gradients(trace: Trace) -> list[WithZeroGradients]:
    """Return the optimizers with such gradients."""
    return sql.records(WithZeroGradients, trace, _ZERO)
