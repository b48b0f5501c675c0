"""Queries the learning rates of optimizers."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_RISE = 2.0
"""Smallest factor between the rates of two steps that is a rise."""

_RATES = """
    SELECT name, rate, before, file, line, rounded_eps FROM learning_rates
    WHERE log = ? AND time_unix_ns < ? ORDER BY time_unix_ns DESC
"""
_RISE = """
    SELECT name, rate, before, file, line, rounded_eps FROM learning_rates
    WHERE log = ? AND time_unix_ns > ? AND time_unix_ns < ? AND rate >= ? * before
    ORDER BY rate / before DESC LIMIT 1
"""
_OPTIMIZERS = """
    SELECT name, rate, before, file, line, rounded_eps FROM learning_rates WHERE log = ? AND before IS NULL
    QUALIFY row_number() OVER (PARTITION BY name, file, line ORDER BY time_unix_ns) = 1 ORDER BY time_unix_ns
"""

_ROUNDED = """
    SELECT log, time_unix_ns, name, file, line, rounded_eps AS eps FROM learning_rates WHERE rounded_eps IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY log, name, file, line ORDER BY time_unix_ns) = 1 ORDER BY log, time_unix_ns
"""


class Rate(NamedTuple):
    """The learning rate with which an optimizer steps."""

    name: str
    """The class of the optimizer."""
    rate: float
    before: float | None
    """The rate in the step before; None in the first step."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None
    rounded_eps: float | None
    """In the first step, an eps that is zero in float16, the dtype of its parameters."""

    @property
    def source(self) -> SourceLine | None:
        return line_at(self.file, self.line)


def rise_between(trace: Trace, log: int, after_ns: int, before_ns: int) -> Rate | None:
    """Return the largest rise of a learning rate between two times (Unix, ns), or None."""
    return sql.record(Rate, trace, _RISE, [log, after_ns, before_ns, LEAST_RISE])


def rates_of_only_optimizer(trace: Trace, log: int, before_ns: int) -> list[Rate]:
    """Return the rates before a time (Unix, ns), the last one first, if there is one optimizer."""
    found = sql.records(Rate, trace, _RATES, [log, before_ns])
    return found if sum(one.before is None for one in found) == 1 else []


def first_rates(trace: Trace, log: int) -> list[Rate]:
    """Return the rates of the first steps of a log's optimizers, one per class and line."""
    return sql.records(Rate, trace, _OPTIMIZERS, [log])


class RoundedEps(NamedTuple):
    """An optimizer whose eps is zero in float16, the dtype of its parameters."""

    log: int
    time_unix_ns: int
    name: str
    file: str | None
    line: int | None
    eps: float


def rounded_eps(trace: Trace) -> list[RoundedEps]:
    """Return the first optimizer of each class and line of each log whose eps is rounded to zero, in order of time."""
    return sql.records(RoundedEps, trace, _ROUNDED)
