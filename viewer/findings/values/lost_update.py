"""A tensor with equal elements, such as a counter, changed by the same amount in two or more steps and then kept its
value in three or more, until the recording ended; and adding that amount to the value gives the value again in the
tensor's dtype, because the distance to the next number of that dtype is at least twice as large. Or a launch that adds
(add, sub, lerp, addcmul, addcdiv) read and wrote an input of the graph in bfloat16, float16 or float8 in each of five
or more steps, and the input had the same bits every time, although it is not zero and another floating-point input of
the launch changed each time, or its elements are all equal. Or at least 90 % of the elements of parameters in bfloat16
or float16 that were compared had a gradient in each of five steps of an optimizer of torch.optim, whose learning rate
did not rise, and never changed. Or a graph that ran three times or more replaces an input in bfloat16 or float16 by a
weighted mean of itself and of new values, and the weight of these is so small that an element stays as it is unless the
new value differs from it by its own magnitude or more; the graph of Dynamo shows it, but not how far the values are
apart. Such updates are lost. The tensor needs a dtype with more digits. If the launch moves other tensors of such a
dtype, the finding is for information."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, rule_of
from stepscope.viewer.findings.values.courses import Subject, numbers_text, others_text
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.lost_averages import of_lost_averages
from stepscope.viewer.findings.values.operations import operators, place, source_line
from stepscope.viewer.graphs.rows import SiteRow, SourceLine, line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.flow import Flow, Flows
from stepscope.viewer.values.queries.lost_updates import LostUpdate, lost_updates
from stepscope.viewer.values.queries.trends import Course, constants, unmoved
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "A tensor no longer changes because its dtype rounds the change away"
TITLE_IS_MEASURED = False

LEAST_MOVES, LEAST_STOPS, LEAST_STEPS = 2, 3, 5
_ADDITIONS = frozenset(("add", "sub", "lerp", "addcmul", "addcdiv"))
_ADDS = re.compile(r"[+-]=|\b(?:add|sub|lerp|addcmul|addcdiv)_?\(")
_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float8_e4m3fn": 4, "float8_e5m2": 3}
"""Binary digits of the significand, with the leading one."""


class Stop(NamedTuple):
    """A course with the position at which its value is reached that stays, and the lost amount."""

    course: Course
    position: int
    amount: float


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per tensor, one per optimizer, and one per line that updates moving averages."""
    trace = evidence.trace
    averages = [*of_lost_averages(evidence, rule_of(__doc__))]
    known = [*averages, *(_of_optimizer(evidence, one) for one in lost_updates(trace))]
    if not has_values(trace):
        return known
    lines = {finding.source for _, finding in averages}
    still = [one for one in _still(trace) if _update(one.site) not in lines]
    found = [_unmoved(trace, group) for group in grouped(still, lambda one: one.course.site)]
    stops = [stop for course in constants(trace, LEAST_MOVES + LEAST_STOPS) if (stop := stop_of(course)) is not None]
    return [*known, *found, *(_finding(trace, stop) for stop in stops)]


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
    return value != 0 and 0 < abs(amount) <= spacing(value, dtype) / 2


def spacing(value: float, dtype: str) -> float:
    """Return the distance from `value` to the next number of `dtype`."""
    _, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - _DIGITS[dtype])


def _still(trace: Trace) -> list[Subject]:
    """Return the tensors to which launches add in every step and that never change."""
    flows = Flows(trace)
    subjects = [Subject(trace, course) for course in unmoved(trace, LEAST_STEPS - 1)]
    return [subject for subject in subjects if _adds(subject) and _is_updated(flows, subject)]


def _adds(subject: Subject) -> bool:
    names = {name.rpartition("aten.")[2].partition(".")[0] for name in operators(subject.site)}
    return bool(names & _ADDITIONS)


def _is_updated(flows: Flows, subject: Subject) -> bool:
    """Return whether each launch read the tensor that it wrote, and read something else than the launch before."""
    memory = _memory(subject)
    found = [flows.of_launch(launch) for launch in subject.course.launches[:LEAST_STEPS]]
    own = [_digests(flow, lambda name: name == memory) for flow in found]
    others = [_digests(flow, lambda name: name != memory) for flow in found]
    written = [row for one in found[0].outputs if one.argument == subject.course.argument for row in one.after]
    is_constant = any(row.min == row.max for row in written)
    return all(own) and (is_constant or all(now != before for before, now in pairwise(others)))


def _memory(subject: Subject) -> str | None:
    return subject.argument.buffer or subject.argument.name if subject.argument is not None else None


def _digests(flow: Flow, wanted: Callable[[str | None], bool]) -> list[str | None]:
    """Return the digests of the floating-point inputs of a launch whose memory is `wanted`."""
    inputs = [one for one in flow.inputs if wanted(one.buffer or one.name)]
    return [row.digest for one in inputs for row in one.before if "float" in row.dtype]


def _update(site: SiteRow) -> SourceLine | None:
    """Return the line of the model that adds, of those that a launch computes."""
    found = (stack[-1] for stack in site.stacks if stack and _ADDS.search(stack[-1].code))
    return next(found, source_line(site))


def _unmoved(trace: Trace, subjects: list[Subject]) -> Timed:
    subject, source = subjects[0], _update(subjects[0].site)
    course, steps = subject.course, len(subject.course.steps)
    names = list(dict.fromkeys(one.name for one in subjects))
    largest = course.numbers[0] or 0.0
    same = [one for one in subject.site.arguments if one.role != "in" and one.held == "input"]
    are_others = len({one.buffer or one.name for one in same} - {_memory(one) for one in subjects}) > 0
    return subject.place_at(0).time_unix_ns, Finding(
        kind="lost_update",
        severity="info" if are_others else "warning",
        title=(
            f"{subject.name}{place(source)} was updated in {plural(steps, 'step')} and never changed:"
            f" {course.dtype} rounds the additions away"
        ),
        proof=[
            f"Its elements of up to {number(largest)} had the same bits after each update; an addition of less than"
            f" {number(spacing(largest, course.dtype) / 2)} has no effect there",
            *others_text(len(names) - 1, "never changed either"),
        ],
        rule=rule_of(__doc__),
        evidence={"value": largest, "dtype": course.dtype, "steps_without_change": steps, "tensors": names},
        **{**subject.fields(0), "source": source},
    )


def _of_optimizer(evidence: Evidence, one: LostUpdate) -> Timed:
    source = line_at(one.file, one.line)
    needed = number(spacing(one.magnitude, one.dtype) / 2)
    moved = one.elements - one.unchanged
    changed, rest = (f"{moved:,}", "the other") if moved else ("none", "their")
    return one.time_unix_ns, Finding(
        kind="lost_update",
        severity="warning",
        title=(
            f"Steps of {one.name}{place(source)} change {changed} of {one.elements:,} elements:"
            f" {one.dtype} rounds {rest} updates away"
        ),
        proof=[
            f"{one.unchanged:,} elements of {plural(one.parameters, 'parameter')} had a gradient in each of 5 steps and"
            f" never changed, with a learning rate of {number(one.learning_rate)}; half of them have a magnitude of"
            f" {number(one.magnitude)} or more, which changes of less than {needed} do not move in {one.dtype}"
        ],
        rule=rule_of(__doc__),
        evidence={
            "optimizer": one.name,
            **attributes(one, "dtype", "parameters", "elements", "unchanged", "learning_rate", "magnitude"),
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )


def _finding(trace: Trace, stop: Stop) -> Timed:
    course, at, subject = stop.course, stop.position, Subject(trace, stop.course)
    value, source = course.numbers[at] or 0.0, _update(subject.site)
    steps = len(course.steps) - 1 - at
    return subject.place_at(at + 1).time_unix_ns, Finding(
        kind="lost_update",
        severity="warning",
        title=(
            f"{subject.name}{place(source)} stopped at {number(value)} in step {course.steps[at]}:"
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
        **{**subject.fields(at + 1), "source": source},
    )
