"""Words for the learning rates with which parameters changed."""

from __future__ import annotations

from stepscope.viewer.findings.values.courses import Subject
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.values.queries.learning_rates import Rate, rate_of_only_optimizer, rise_between


def rise_at(subject: Subject, first: int, last: int) -> Rate | None:
    """Return the rise of a learning rate between two positions of a course, or None."""
    began, ended = (subject.place_at(at).time_unix_ns for at in (max(first, 0), last))
    return rise_between(subject.trace, subject.course.log, began, ended)


def rise_text(rise: Rate | None) -> str:
    """Return text such as ``, after the learning rate of SGD (train.py:12) had risen from 0.001 to 40``, or ""."""
    if rise is None or rise.before is None:
        return ""
    return f", after the learning rate of {_named(rise)} had risen from {number(rise.before)} to {number(rise.rate)}"


def rise_evidence(rise: Rate | None) -> dict[str, float | None]:
    """Return the evidence for a rise."""
    return {"learning_rate": rise.rate, "learning_rate_before": rise.before} if rise is not None else {}


def rate_text(subject: Subject, position: int) -> list[str]:
    """Return a sentence with the learning rate of a parameter at a position of its course, or nothing."""
    if not subject.is_parameter:
        return []
    rate = rate_of_only_optimizer(subject.trace, subject.course.log, subject.place_at(position).time_unix_ns)
    return [f"The learning rate of {_named(rate)} is {number(rate.rate)}."] if rate is not None else []


def _named(rate: Rate) -> str:
    """Return the optimizer with the line of the program that steps it."""
    known = SourceLine(rate.file, rate.line, "", "") if rate.file is not None and rate.line is not None else None
    return f"{rate.name}{place(known)}"
