"""The largest magnitude of a tensor grew in each of the last four or more steps by at least a tenth, and at least a
thousandfold in all, to more than 10,000 or until the tensor became NaN or infinite; in the latter case two steps
suffice in each of which it grew at least a hundredfold. The NaN and infinities in which such growth ends belong to this
finding, which is critical then: overflows from the last finite step on, what comes from them or from an earlier step,
and what is made from numbers whose squares overflow. Of all tensors that grew like this, the finding names the one that
began first, in the step in which it began, or that of the largest rise of a learning rate if nearly all of the growth
came after it; the others are its consequences or share its cause. A learning rate that is too high is the usual cause;
the finding says if it had just risen, or has risen to four times the first one or more. It is left out if code outside
of the graphs multiplies an input in place again and again (changed_outside). Of several lines that a launch computes,
one that only has results within bounds, as those of tanh and sigmoid, is not named."""

from __future__ import annotations

import math
import re
from itertools import pairwise

from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, attributes, grouped, rule_of
from stepscope.viewer.findings.values.changed_outside import growing_logs
from stepscope.viewer.findings.values.climbs import Climb, climbs
from stepscope.viewer.findings.values.courses import Subject, numbers_text, others_text
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.learning_rates import outlier_text, rate_text, rise_at, rise_evidence, rise_text
from stepscope.viewer.findings.values.nonfinite import ends_of_climbs
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.nonfinite_parameters import nonfinite_parameters
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "Values grow from step to step"
TITLE_IS_MEASURED = True

MOST_UNEVEN = 10
"""How many times the mean factor of a step the largest one may be if it is told."""
_NEARLY_ALL = 0.9
"""Share of the logarithm of the growth."""
_BOUNDED = re.compile(r"\b(?:tanh|sigmoid|softmax|hardtanh|relu6|sin|cos|normalize|\w*norm\d?d?)\(")


def find(evidence: Evidence) -> list[Timed]:
    """Return at most one finding per log."""
    trace = evidence.trace
    caused = growing_logs(trace) if has_values(trace) else set()
    of_logs = grouped(climbs(trace), lambda one: one.course.log)
    ends = ends_of_climbs(trace) if any(climb.is_lost for of_log in of_logs for climb in of_log) else {}
    return [
        _finding(trace, of_log, ends.get(of_log[0].course.log, []))
        for of_log in of_logs
        if of_log[0].course.log not in caused
    ]


def growing_line(site: SiteRow) -> SourceLine | None:
    """Return the line of the model that a launch computes, of several one whose results have no bounds."""
    lines = [stack[-1] for stack in site.stacks if stack]
    likely = source_line(site)
    ranked = [likely] * (likely in lines) + lines
    return next((line for line in ranked if line is not None and not _BOUNDED.search(line.code)), likely)


def _from_rise(subject: Subject, climb: Climb) -> Climb:
    """Return the growth from the largest rise of a learning rate on, if nearly all of it came after the rise."""
    rise = rise_at(subject, climb.first - 1, climb.last)
    if rise is None:
        return climb
    for first in range(climb.first, climb.last):
        later = climb._replace(first=first)
        if math.log(later.growth) < _NEARLY_ALL * math.log(climb.growth):
            break
        if rise_at(subject, first, first + 1) == rise:
            return later
    return climb


def _grown(climb: Climb, factor: float) -> str:
    """Return by how much a tensor grew from when on: by the factor of a step, unless one step had a far larger one."""
    steps = climb.course.steps
    numbers = [one for one in climb.course.numbers[climb.first : climb.last + 1] if one]
    lost = f" no longer finite in step {steps[climb.last + 1]}" if climb.is_lost else ""
    if max((after / before for before, after in pairwise(numbers)), default=factor) > MOST_UNEVEN * factor:
        first, last = (number(float(f"{one:.3g}")) for one in (numbers[0], numbers[-1]))
        grown = f"from {first} in step {steps[climb.first]} to {last} in step {steps[climb.last]}"
        return f"{grown}, and was{lost}" if lost else grown
    return (
        f"by a factor of {number(float(f'{factor:.2g}'))} per step from step {steps[climb.first]} on"
        f"{lost and ' until it was' + lost}"
    )


def _finding(trace: Trace, climbs: list[Climb], ends: list[Finding]) -> Timed:
    course, subject = climbs[0].course, Subject(trace, climbs[0].course)
    climb = _from_rise(subject, climbs[0])
    is_first = climb.first == climbs[0].first
    count = climb.last - climb.first
    factor, source = climb.growth ** (1 / count), growing_line(subject.site)
    fields = subject.fields(climb.first)
    links = [ProofLink("open the launch at which it ends", end.page) for end in ends[:1]]
    rise = rise_at(subject, climb.first - 1, climb.first + 1)
    return subject.place_at(climb.first).time_unix_ns, Finding(
        kind="exploding_values",
        severity="critical" if any(end.severity == "critical" for end in ends) else "warning",
        title=(f"{subject.name}{place(source)} grew {_grown(climb, factor)}{rise_text(rise)}"),
        proof=[
            f"largest magnitude {numbers_text(course, climb.first, climb.last)}",
            *others_text(len(climbs) - 1, f"grew in the same way{' and began no earlier' * is_first}"),
            *([] if rise is not None else rate_text(subject, climb.first + 1)),
            *(text for one in nonfinite_parameters(trace) if one.log == course.log for text in outlier_text(one)),
            *[f"Then this happens: {end.title}" for end in ends[:1]],
        ],
        rule=rule_of(__doc__),
        evidence={
            "factor_per_step": factor,
            "first_step": course.steps[climb.first],
            "last_finite_step": course.steps[climb.last],
            "first_nonfinite_step": course.steps[climb.last + 1] if climb.is_lost else None,
            "largest": [course.numbers[climb.first], course.numbers[climb.last]],
            "tensors": len(climbs),
            **rise_evidence(rise),
            "ends": [
                attributes(end, "title", "step", "launch", "graph", "kernel", "page") for end in ends[:MOST_EXAMPLES]
            ],
        },
        **{**fields, "source": source, "links": [*fields["links"], *links]},
    )
