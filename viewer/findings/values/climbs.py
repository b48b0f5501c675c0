"""Finds tensors whose values grow from step to step until they are large or lost, and what they end in."""

from __future__ import annotations

import math
from typing import NamedTuple

from stepscope.viewer.findings.values import nonfinite_titles as titles
from stepscope.viewer.findings.values.origins import Case, Tracer
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.trends import Course, climbing, last_finite, ratios
from stepscope.viewer.values.queries.values import LIMITS, has_values

LEAST_STEPS, LEAST_FACTOR, LEAST_GROWTH, LARGE = 4, 1.1, 1_000, 10_000
LEAST_LOST_STEPS, LEAST_LOST_FACTOR = 2, 100
"""Fewer steps suffice if the tensor grows by such a factor in each of them and is then lost."""


class Climb(NamedTuple):
    """A course with the positions at which its growth begins and ends."""

    course: Course
    first: int
    last: int

    @property
    def growth(self) -> float:
        """Return the last number divided by the first."""
        first, last = self.course.numbers[self.first], self.course.numbers[self.last]
        return last / first if first and last is not None else 0.0

    @property
    def is_lost(self) -> bool:
        """Return whether the tensor became NaN or infinite."""
        return self.last + 1 < len(self.course.steps)


def climbs(trace: Trace) -> list[Climb]:
    """Return the tensors whose values explode, those of a log by the step in which the growth began."""
    return trace.once(_climbs)


def _climbs(trace: Trace) -> list[Climb]:
    if not has_values(trace):
        return []
    found = [
        climb for course in climbing(trace, LEAST_GROWTH, LEAST_LOST_STEPS) if (climb := climb_of(course)) is not None
    ]
    return sorted(found, key=lambda one: (one.course.log, one.course.steps[one.first], one.course.launches[one.first]))


def climb_of(course: Course) -> Climb | None:
    """Return the growth with which a course ends, or None if there is none."""
    last = last_finite(course) - 1
    steps = [ratio or 0.0 for ratio in ratios(course.numbers[: last + 1])]
    first = last
    while first > 0 and steps[first - 1] >= LEAST_FACTOR:
        first -= 1
    climb, count = Climb(course, first, last), last - first
    limit = LIMITS.get(course.dtype, math.inf)
    least = min(LARGE, limit / LEAST_GROWTH) if climb.is_lost else LARGE
    is_large = last >= 0 and (course.numbers[last] or 0.0) >= least
    is_steep = climb.is_lost and count >= LEAST_LOST_STEPS and min(steps[first:last]) >= LEAST_LOST_FACTOR
    return climb if (count >= LEAST_STEPS or is_steep) and climb.growth >= LEAST_GROWTH and is_large else None


def lost_from(trace: Trace, log: int) -> int | None:
    """Return the last step of a log in which a tensor that grew from step to step was finite; None if none was lost."""
    lost = [climb.course.steps[climb.last] for climb in climbs(trace) if climb.course.log == log and climb.is_lost]
    return min(lost, default=None)


def is_end_of_climb(tracer: Tracer, case: Case) -> bool:
    """Return whether a NaN or an infinity only says that a tensor which grew from step to step is too large now: it is
    an overflow, comes from one or from an earlier step, or is made from numbers whose squares overflow."""
    hop = case.hop
    since = lost_from(tracer.trace, hop.flow.log)
    if since is None or hop.flow.step is None or hop.flow.step < since:
        return False
    if case.how != "made" or titles.is_overflow(tracer, hop):
        return True
    if case.grown_from is not None:
        first = case.grown_from.first
        return case.grown_from.how != "made" or titles.is_overflow(tracer, first)
    limit = LIMITS.get(hop.row.dtype)
    largest = max((row.largest or 0.0 for one in hop.flow.inputs for row in [*one.before, *one.source]), default=0.0)
    return limit is not None and largest**2 > limit
