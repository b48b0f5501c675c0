"""The L2 norm of a parameter of the model was at least three times as large in one step as in the step before, although
it had changed by less than a tenth in each of the three or more steps before that. The finding names the step and the
parameter with the largest jump, and counts the others that jumped in the same step. It is left out from the step on in
which values of the same log begin to explode, which is then reported instead. A spike of the learning rate, which is
named if it at least doubled in between, a loaded checkpoint, or a bad batch are usual causes."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, grouped, rule_of
from stepscope.viewer.findings.values.climbs import climbs
from stepscope.viewer.findings.values.courses import Subject, numbers_text, others_text
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.learning_rates import rise_at, rise_evidence, rise_text
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.trends import Course, jumping, last_finite, ratios
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "A parameter jumped from one step to the next"
TITLE_IS_MEASURED = True

LEAST_QUIET_STEPS, MOST_CHANGE, LEAST_JUMP = 3, 0.1, 3.0


class Jump(NamedTuple):
    """A course with the position behind the jump, and the factor."""

    course: Course
    position: int
    factor: float

    @property
    def step(self) -> int:
        """Return the step behind the jump."""
        return self.course.steps[self.position]


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log and step."""
    trace = evidence.trace
    if not has_values(trace):
        return []
    exploding: dict[int, int] = {}
    for climb in climbs(trace):  # the first of a log comes first
        exploding.setdefault(climb.course.log, climb.course.steps[climb.first])
    jumps = [jump for course in jumping(trace, LEAST_JUMP, LEAST_QUIET_STEPS) if (jump := jump_of(course)) is not None]
    jumps = [jump for jump in jumps if jump.step <= exploding.get(jump.course.log, jump.step)]
    jumps = [jump for jump in jumps if Subject(trace, jump.course).is_parameter]
    groups = grouped(jumps, lambda jump: (jump.course.log, jump.step))
    return [_finding(trace, jumps) for jumps in groups]


def jump_of(course: Course) -> Jump | None:
    """Return the first jump of a course that was quiet before, or None."""
    quiet = 0
    for i, ratio in enumerate(ratios(course.numbers[: last_finite(course)])):
        if ratio is not None and ratio >= LEAST_JUMP and quiet >= LEAST_QUIET_STEPS:
            return Jump(course, i + 1, ratio)
        quiet = quiet + 1 if ratio is not None and abs(ratio - 1) <= MOST_CHANGE else 0
    return None


def _finding(trace: Trace, jumps: list[Jump]) -> Timed:
    jump = max(jumps, key=lambda one: one.factor)
    parameters = {Subject(trace, one.course).name for one in jumps}
    course, at, subject = jump.course, jump.position, Subject(trace, jump.course)
    factor = number(float(f"{jump.factor:.2g}"))
    rise = rise_at(subject, at - 1, at)
    between = f"between step {course.steps[at - 1]} and step {course.steps[at]}"
    return subject.place_at(at).time_unix_ns, Finding(
        kind="parameter_jump",
        severity="warning",
        title=f"{subject.name} became {factor} times as large {between}{rise_text(rise)}",
        proof=[
            f"L2 norm {numbers_text(course, 0, at)}",
            *others_text(len(parameters) - 1, "jumped in the same step"),
        ],
        rule=rule_of(__doc__),
        evidence={
            "factor": jump.factor,
            "l2_before": course.numbers[at - 1],
            "l2_after": course.numbers[at],
            "parameters": len(parameters),
            **rise_evidence(rise),
        },
        **subject.fields(at),
    )
