"""Words for the learning rates with which parameters changed."""

from __future__ import annotations

import orjson

from stepscope.viewer.findings.evidence import names_text
from stepscope.viewer.findings.values.courses import Subject
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.values.queries.learning_rates import Rate, rates_of_only_optimizer, rise_between
from stepscope.viewer.values.queries.nonfinite_parameters import BadParameters

LEAST_SLOW_RISE = 4.0
"""Smallest factor from the first rate on that is told of a rate which rises slowly."""


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
    """Return a sentence with the learning rate at a position of a course, or nothing: how far it has risen slowly, as
    in a warm-up that does not end, or else the rate of a parameter."""
    rates = rates_of_only_optimizer(subject.trace, subject.course.log, subject.place_at(position).time_unix_ns)
    if not rates:
        return []
    last, first = rates[0], rates[-1]
    has_risen = last.rate > first.rate and last.rate >= LEAST_SLOW_RISE * first.rate
    if has_risen and last.rate == max(one.rate for one in rates):
        return [
            f"The learning rate of {_named(last)} has risen from {number(first.rate)} in its first step to about"
            f" {number(last.rate)}."
        ]
    return [f"The learning rate of {_named(last)} is about {number(last.rate)}."] if subject.is_parameter else []


def outlier_text(one: BadParameters) -> list[str]:
    """Return a sentence with the parameter group whose learning rate is far above the others, or nothing."""
    if one.groups is None or one.largest_rate is None or one.largest_rate_names is None:
        return []
    names = [name for name in orjson.loads(one.largest_rate_names) if name is not None]
    return [
        f"The parameter group of {names_text(names) or 'other parameters'} has a learning rate of"
        f" {number(one.largest_rate)}, while the median of the {one.groups:,} groups of {one.name} is"
        f" {number(one.median_rate or 0)}."
    ]


def _named(rate: Rate) -> str:
    """Return the optimizer with the line of the program that steps it."""
    return f"{rate.name}{place(rate.source)}"
