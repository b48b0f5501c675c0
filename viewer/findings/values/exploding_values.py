"""The largest magnitude of a tensor grew in each of the last four or more steps by at least a tenth, and at least a
thousandfold in all, to more than 10,000 or until the tensor became NaN or infinite. Of all tensors that grew like this,
the finding names the one that began first, in the step in which it began; the others are its consequences or share its
cause. A learning rate that is too high is the usual cause. It is left out if code outside of the graphs multiplies an
input in place again and again (changed_outside). Of several lines that a launch computes, one that only has results
within bounds, as those of tanh and sigmoid, is not named."""

from __future__ import annotations

import re
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, grouped, rule_of
from stepscope.viewer.findings.values.changed_outside import growing_logs
from stepscope.viewer.findings.values.courses import Subject, numbers_text, others_text
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.trends import Course, climbing, last_finite, ratios
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "Values grow from step to step"
TITLE_IS_MEASURED = True

_BOUNDED = re.compile(r"\b(?:tanh|sigmoid|softmax|hardtanh|relu6|sin|cos|\w*norm\d?d?)\(")
LEAST_STEPS, LEAST_FACTOR, LEAST_GROWTH, LARGE = 4, 1.1, 1_000, 10_000


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


def find(evidence: Evidence) -> list[Timed]:
    """Return at most one finding per log."""
    trace = evidence.trace
    caused = growing_logs(trace) if has_values(trace) else set()
    of_logs = grouped(climbs(trace), lambda one: one.course.log)
    return [_finding(trace, of_log) for of_log in of_logs if of_log[0].course.log not in caused]


def climbs(trace: Trace) -> list[Climb]:
    """Return the tensors whose values explode, those of a log by the step in which the growth began."""
    if not has_values(trace):
        return []
    found = [climb for course in climbing(trace, LEAST_GROWTH, LEAST_STEPS) if (climb := climb_of(course)) is not None]
    return sorted(found, key=lambda one: (one.course.log, one.course.steps[one.first], one.course.launches[one.first]))


def climb_of(course: Course) -> Climb | None:
    """Return the growth with which a course ends, or None if there is none."""
    last = last_finite(course) - 1
    steps = ratios(course.numbers[: last + 1])
    first = last
    while first > 0 and (steps[first - 1] or 0.0) >= LEAST_FACTOR:
        first -= 1
    climb = Climb(course, first, last)
    is_large = climb.is_lost or (last >= 0 and (course.numbers[last] or 0.0) >= LARGE)
    return climb if last - first >= LEAST_STEPS and climb.growth >= LEAST_GROWTH and is_large else None


def growing_line(site: SiteRow) -> SourceLine | None:
    """Return the line of the model that a launch computes, of several one whose results have no bounds."""
    lines = [stack[-1] for stack in site.stacks if stack]
    likely = source_line(site)
    ranked = [likely] * (likely in lines) + lines
    return next((line for line in ranked if line is not None and not _BOUNDED.search(line.code)), likely)


def _finding(trace: Trace, climbs: list[Climb]) -> Timed:
    climb = climbs[0]
    course, subject = climb.course, Subject(trace, climb.course)
    count = climb.last - climb.first
    factor, source = climb.growth ** (1 / count), growing_line(subject.site)
    lost = f" until it was no longer finite in step {course.steps[climb.last + 1]}" if climb.is_lost else ""
    return subject.place_at(climb.first).time_unix_ns, Finding(
        kind="exploding_values",
        severity="warning",
        title=(
            f"{subject.name}{place(source)} grew by a factor of {number(float(f'{factor:.2g}'))} per step"
            f" from step {course.steps[climb.first]} on{lost}"
        ),
        proof=[
            f"largest magnitude {numbers_text(course, climb.first, climb.last)}",
            *others_text(len(climbs) - 1, "grew in the same way and began no earlier"),
        ],
        rule=rule_of(__doc__),
        evidence={
            "factor_per_step": factor,
            "first_step": course.steps[climb.first],
            "last_finite_step": course.steps[climb.last],
            "first_nonfinite_step": course.steps[climb.last + 1] if climb.is_lost else None,
            "largest": [course.numbers[climb.first], course.numbers[climb.last]],
            "tensors": len(climbs),
        },
        **{**subject.fields(climb.first), "source": source},
    )
