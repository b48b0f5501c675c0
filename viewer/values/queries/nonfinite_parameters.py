"""Queries the optimizers whose parameters became NaN or infinite."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_NONFINITE = """
    SELECT log, time_unix_ns, name, steps, finite_steps, is_last, parameters, nonfinite, is_nan, names, nan_before,
           first_step, last_step, file, line, nonfinite_float16, infinite_before, groups, largest_rate, median_rate,
           largest_rate_names
    FROM nonfinite_parameters ORDER BY log, time_unix_ns, name, line
"""


class BadParameters(NamedTuple):
    """Parameters of an optimizer that became NaN or infinite."""

    log: int
    time_unix_ns: int
    name: str
    """The class of the optimizer."""
    steps: int
    """The number of its steps until they were seen to be NaN or infinite."""
    finite_steps: int
    """The number of its steps until they were last seen to be finite."""
    is_last: bool
    """Whether they were seen when the recording ended."""
    parameters: int
    nonfinite: int
    is_nan: bool
    names: str
    """JSON list of the first ones; null for those that no module has."""
    nan_before: str
    """JSON list of the first ones that held NaN already when they were first looked at."""
    first_step: int
    last_step: int
    file: str | None
    line: int | None
    nonfinite_float16: int | None
    """How many of those that became NaN or infinite are in float16; None in older logs."""
    infinite_before: int | None
    """How many parameters held infinities, but no NaN, when they were first looked at; None in older logs."""
    groups: int | None
    """How many parameter groups there are, if the learning rate of one is at least ten times the median."""
    largest_rate: float | None
    median_rate: float | None
    largest_rate_names: str | None
    """JSON list of the first parameters of the group with the largest learning rate."""

    @property
    def optimizer(self) -> tuple[str, str | None, int | None]:
        """The class of the optimizer, and the place that calls `step`."""
        return self.name, self.file, self.line

    @property
    def eps_may_be_cause(self) -> bool:
        """Whether only parameters in float16, in which a small eps is zero, became NaN or infinite."""
        return self.nonfinite_float16 == self.nonfinite


def nonfinite_parameters(trace: Trace) -> list[BadParameters]:
    """Return the optimizers of each log whose parameters became NaN or infinite."""
    return sql.records(BadParameters, trace, _NONFINITE)
