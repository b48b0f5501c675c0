"""A tensor with equal elements, such as a counter, changed by the same amount in two or more steps and then kept its
value in three or more, until the recording ended; and adding that amount to the value gives the value again in the
tensor's dtype, because the distance to the next number of that dtype is at least twice as large. Later updates are
lost. The tensor needs a dtype with more digits."""

from __future__ import annotations

import math
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.courses import Subject, numbers_text
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.trends import Course, constants
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "A tensor no longer changes because its dtype rounds the change away"
TITLE_IS_MEASURED = False

LEAST_MOVES, LEAST_STOPS = 2, 3
_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float8_e4m3fn": 4, "float8_e5m2": 3}
"""Binary digits of the significand, with the leading one."""


class Stop(NamedTuple):
    """A course with the position at which its value is reached that stays, and the lost amount."""

    course: Course
    position: int
    amount: float


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per tensor."""
    trace = evidence.trace
    if not has_values(trace):
        return []
    stops = [stop for course in constants(trace, LEAST_MOVES + LEAST_STOPS) if (stop := stop_of(course)) is not None]
    return [_finding(trace, stop) for stop in stops]


def stop_of(course: Course) -> Stop | None:
    """Return where a course stopped although the same amount was still added to it, or None."""
    numbers = [one for one in course.numbers if one is not None]
    if len(numbers) < len(course.numbers) or course.dtype not in _DIGITS:
        return None
    at = len(numbers) - 1
    while at > 0 and numbers[at - 1] == numbers[at]:
        at -= 1
    if len(numbers) - 1 - at < LEAST_STOPS or at < LEAST_MOVES:
        return None
    amounts = {round(numbers[i] - numbers[i - 1], 9) for i in range(at - LEAST_MOVES + 1, at + 1)}
    amount = amounts.pop()
    return Stop(course, at, amount) if not amounts and is_lost(numbers[at], amount, course.dtype) else None


def is_lost(value: float, amount: float, dtype: str) -> bool:
    """Return whether `value` + `amount` rounds to `value` in `dtype`."""
    _, exponent = math.frexp(value)
    spacing = math.ldexp(1.0, exponent - _DIGITS[dtype])
    return value != 0 and 0 < abs(amount) <= spacing / 2


def _finding(trace: Trace, stop: Stop) -> Timed:
    course, at, subject = stop.course, stop.position, Subject(trace, stop.course)
    value = course.numbers[at] or 0.0
    steps = len(course.steps) - 1 - at
    return subject.place_at(at + 1).time_unix_ns, Finding(
        kind="lost_update",
        severity="warning",
        title=(
            f"{subject.name}{subject.line} stopped at {number(value)} in step {course.steps[at]}:"
            f" adding {number(stop.amount)} to it has no effect in {course.dtype}"
        ),
        proof=[f"value {numbers_text(course, at - LEAST_MOVES, at + LEAST_STOPS)}"],
        rule=rule_of(__doc__),
        evidence={
            "value": value,
            "amount": stop.amount,
            "dtype": course.dtype,
            "steps_without_change": steps,
        },
        **subject.fields(at + 1),
    )
