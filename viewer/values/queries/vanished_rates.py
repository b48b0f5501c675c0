"""Queries the optimizers whose learning rates were almost nothing for many steps."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_OF_FIRST_LOG = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, name, file, line,
           arg_min(largest, log) AS largest, arg_min(rate, log) AS rate, arg_min(steps, log) AS steps,
           arg_min(low, log) AS low, arg_min(scheduler, log) AS scheduler,
           arg_min(scheduler_file, log) AS scheduler_file, arg_min(scheduler_line, log) AS scheduler_line
    FROM counted WHERE low >= $least GROUP BY name, file, line ORDER BY log, name
"""
_SCHEDULER = """
               arg_min(scheduler, r.time_unix_ns) AS scheduler,
               arg_min(scheduler_file, r.time_unix_ns) AS scheduler_file,
               arg_min(scheduler_line, r.time_unix_ns) AS scheduler_line
"""
_VANISHED = f"""
    WITH largest AS (
        SELECT log, max(rate) AS largest FROM learning_rates GROUP BY log HAVING count(DISTINCT (name, file, line)) = 1
    ),
    high AS (
        SELECT log, largest, max(time_unix_ns) AS high_ns FROM learning_rates JOIN largest USING (log)
        WHERE rate > $share * largest GROUP BY ALL
    ),
    fallen AS (
        SELECT r.log, name, file, line, largest, min(r.time_unix_ns) AS time_unix_ns,
               arg_max(rate, r.time_unix_ns) AS rate, {_SCHEDULER}
        FROM learning_rates r JOIN high h ON r.log = h.log AND r.time_unix_ns > h.high_ns
        WHERE r.before IS NOT NULL GROUP BY ALL
    ),
    counted AS (
        SELECT f.*, count(*) AS steps,
               count(*) FILTER (WHERE s.end_ns - l.monotonic_ns + l.unix_ns >= f.time_unix_ns) AS low
        FROM fallen f JOIN logs l ON l.log = f.log JOIN steps s ON s.log = f.log WHERE s.kind = 'train' GROUP BY ALL
    )
    {_OF_FIRST_LOG}
"""
_NOT_RISEN = f"""
    WITH optimizers AS (
        SELECT log, min(name) AS name, min(file) AS file, min(line) AS line, max(rate) AS largest,
               min(time_unix_ns) AS time_unix_ns, arg_min(rate, time_unix_ns) AS rate
        FROM learning_rates GROUP BY log HAVING count(DISTINCT (name, file, line)) = 1
    ),
    risen AS (
        SELECT o.*, min(r.time_unix_ns) AS risen_ns, {_SCHEDULER}
        FROM optimizers o JOIN learning_rates r ON r.log = o.log
        WHERE o.rate <= $share * largest AND r.before <= $share * largest AND r.rate > $share * largest GROUP BY ALL
    ),
    counted AS (
        SELECT o.*, count(*) AS steps,
               count(*) FILTER (WHERE s.end_ns - l.monotonic_ns + l.unix_ns < o.risen_ns) AS low
        FROM risen o JOIN logs l ON l.log = o.log JOIN steps s ON s.log = o.log WHERE s.kind = 'train' GROUP BY ALL
    )
    {_OF_FIRST_LOG}
"""


class VanishedRate(NamedTuple):
    """The learning rate of the only optimizer of a log, the first one that has it."""

    log: int
    time_unix_ns: int
    name: str
    """The class of the optimizer."""
    file: str | None
    line: int | None
    """The place that calls `step`."""
    largest: float
    rate: float
    """The rate of the last step, or of the first one if it had not risen yet."""
    steps: int
    low: int
    """Number of training steps with almost no rate: the last ones, or the first ones."""
    scheduler: str | None
    """The class of the scheduler that had changed the rate; None if it is unknown."""
    scheduler_file: str | None
    scheduler_line: int | None
    """The place that calls the scheduler's `step`."""


def vanished_rates(trace: Trace, share: float, least: int) -> list[VanishedRate]:
    """Return the rates that fell to at most a share of the largest and stayed there for the last `least` or more
    training steps."""
    return _found(trace, _VANISHED, share, least)


def rates_before_a_rise(trace: Trace, share: float, least: int) -> list[VanishedRate]:
    """Return the rates that were at most a share of the largest in the first `least` or more training steps."""
    return _found(trace, _NOT_RISEN, share, least)


def _found(trace: Trace, statement: str, share: float, least: int) -> list[VanishedRate]:
    if not sql.has_rows(trace, "learning_rates"):
        return []
    return sql.records(VanishedRate, trace, statement, {"share": share, "least": least})
