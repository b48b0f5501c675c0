"""Queries for the course of a tensor's statistics: values that climb, jump, stop or never move, or are all zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_SERIES = 2_000
"""Maximum number of tensors whose course is read; those that were first read earliest come first."""
LEAST_ELEMENTS = 16
"""Tensors with fewer elements do not count as parameters or activations."""
_KEY = "v.log, v.site, v.argument, v.item, v.moment"
_STEPS = "max(v.step) - min(v.step)"
"""At least the number of steps less one: counting them would keep the steps of every tensor in memory."""
_CLIMBED = f"""
    SELECT {_KEY} FROM value_rows v
    WHERE v.largest > 0 AND v.nan = 0 AND v.positive_infinity = 0 AND v.negative_infinity = 0 GROUP BY ALL
    HAVING {_STEPS} >= $least AND max(v.largest) >= $growth * min(v.largest)
       AND arg_max(v.step, v.largest) = max(v.step)
"""
_JUMPED = f"""
    SELECT {_KEY} FROM value_rows v JOIN arguments a ON a.site = v.site AND a.argument = v.argument
    WHERE v.moment = 'before' AND a.held = 'input' AND v.numel >= {LEAST_ELEMENTS} AND v.l2 > 0 GROUP BY ALL
    HAVING {_STEPS} >= $least AND max(v.l2) >= $growth * min(v.l2)
"""
_CONSTANT = f"""
    SELECT {_KEY} FROM value_rows v WHERE v.moment = 'after' AND v.min = v.max AND contains(v.dtype, 'float')
    GROUP BY ALL HAVING {_STEPS} >= $least AND max(v.max) > min(v.max) AND $growth > 0
"""
_ZERO = f"""
    SELECT {_KEY} FROM value_rows v
    WHERE v.moment = 'after' AND v.numel >= {LEAST_ELEMENTS} AND contains(v.dtype, 'float') GROUP BY ALL
    HAVING {_STEPS} >= $least AND bool_and(v.zero = v.looked_at) AND $growth > 0
"""
# An input of the graph that launches write with the same bits in every step.
_UNMOVED = f"""
    SELECT {_KEY} FROM value_rows v JOIN arguments a ON a.site = v.site AND a.argument = v.argument
    WHERE v.moment = 'after' AND a.held = 'input' AND v.looked_at = v.numel AND v.largest > 0
      AND (v.dtype IN ('bfloat16', 'float16') OR starts_with(v.dtype, 'float8'))
    GROUP BY ALL HAVING {_STEPS} >= $least AND count(v.digest) = count(*) AND min(v.digest) = max(v.digest)
       AND $growth > 0
"""
_COURSES = """
    WITH chosen AS ({chosen}), by_step AS (
        SELECT {key}, v.step, max(v.{statistic}) AS most, min(v.launch) AS launch, bool_or(v.nan + v.positive_infinity
               + v.negative_infinity > 0) AS bad, any_value(v.dtype) AS dtype, any_value(v.numel) AS numel
        FROM value_rows v SEMI JOIN chosen c ON c.log = v.log AND c.site = v.site AND c.argument = v.argument
         AND c.moment = v.moment AND c.item IS NOT DISTINCT FROM v.item
        WHERE v.nan IS NOT NULL GROUP BY ALL
    )
    SELECT v.log, v.site, v.argument, v.item, v.moment, '{statistic}' AS statistic,
           any_value(v.dtype) AS dtype, any_value(v.numel) AS numel,
           list(v.step ORDER BY v.step) AS steps, list(v.most ORDER BY v.step) AS numbers,
           list(v.launch ORDER BY v.step) AS launches, list(v.bad ORDER BY v.step) AS nonfinite
    FROM by_step v GROUP BY {key} ORDER BY min(v.launch), v.argument LIMIT {most}
"""


@dataclass(frozen=True)
class Course:
    """A statistic of one argument of a launch site over the steps in which it was read."""

    log: int
    site: int
    argument: int
    item: int | None
    moment: str
    statistic: str
    dtype: str
    numel: int
    steps: list[int]
    numbers: list[float | None]
    """The largest value of the statistic in each step; None if no element is finite."""
    launches: list[int]
    """The first launch of each step."""
    nonfinite: list[bool]
    """Whether a NaN or an infinity was read in each step."""


def climbing(trace: Trace, growth: float, least: int) -> list[Course]:
    """Return the largest magnitudes of tensors that grew by a factor of at least `growth`, over more than `least`
    steps, and were largest in the last step in which they were finite."""
    return _courses(trace, _CLIMBED, "largest", growth, least)


def jumping(trace: Trace, growth: float, least: int) -> list[Course]:
    """Return the L2 norms of inputs of graphs of which the largest is at least `growth` times the least one."""
    return _courses(trace, _JUMPED, "l2", growth, least)


def constants(trace: Trace, least: int) -> list[Course]:
    """Return the values of floating-point tensors that are written in more than `least` steps, that have equal elements
    each time, and that did not hold the same number in all steps."""
    return _courses(trace, _CONSTANT, "max", 1, least)


def unmoved(trace: Trace, least: int) -> list[Course]:
    """Return the largest magnitudes of inputs of graphs in a dtype with few digits that are written in more than
    `least` steps, always with the same bits."""
    return _courses(trace, _UNMOVED, "largest", 1, least)


def zeros(trace: Trace, least: int) -> list[Course]:
    """Return the floating-point tensors that are written in more than `least` steps and were zero each time."""
    return _courses(trace, _ZERO, "largest", 1, least)


def _courses(trace: Trace, chosen: str, statistic: str, growth: float, least: int) -> list[Course]:
    chosen = chosen.replace("$growth", f"{growth:g}").replace("$least", str(least))
    statement = _COURSES.format(chosen=chosen, key=_KEY, statistic=statistic, most=MOST_SERIES)
    return sql.records(Course, trace, statement, [])


def last_finite(course: Course) -> int:
    """Return the position behind the last number before the first NaN or infinity."""
    bad = (i for i, number in enumerate(course.numbers) if number is None or course.nonfinite[i])
    return next(bad, len(course.numbers))


def ratios(numbers: Sequence[float | None]) -> list[float | None]:
    """Return each number divided by the one before it; None if that is zero or one of them is unknown."""
    return [after / before if before and after is not None else None for before, after in pairwise(numbers)]
