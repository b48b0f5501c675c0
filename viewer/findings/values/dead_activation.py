"""Every element that a launch of a forward graph with a rectifier (relu, relu6, hardtanh, clamp_min) wrote was zero, in
each of the four or more steps that were read, although the first of these launches read a floating-point input that is
not zero everywhere. If the launch also computes an operator that makes zeros (zeros, full, where, amin, minimum, ...),
every floating-point tensor that it writes must be zero, because the zeros may be those of this operator. No gradient
flows through such an activation, so the layers before it no longer learn. The finding names the first of these
launches."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.viewer.findings.evidence import Evidence, Timed, grouped, rule_of
from stepscope.viewer.findings.values.courses import Subject, others_text
from stepscope.viewer.findings.values.operations import fused, operators
from stepscope.viewer.graphs.queries.graphs import graph_row
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.flow import Flows
from stepscope.viewer.values.queries.trends import zeros
from stepscope.viewer.values.queries.values import has_values
from stepscope.viewer.values.rows import ValueRow

SUMMARY = "An activation is zero in every step"
TITLE_IS_MEASURED = True

LEAST_STEPS = 4
_RECTIFIERS = frozenset(("relu", "relu6", "hardtanh", "clamp_min"))
_MAKE_ZEROS = frozenset((
    "amin", "floor", "frac", "full", "full_like", "masked_fill", "min", "minimum", "new_full", "new_zeros", "prod",
    "round", "sign", "trunc", "where", "zeros", "zeros_like",
))  # fmt: skip
"""Operators that make zeros of their own, or of an activation that is not zero."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log."""
    trace = evidence.trace
    if not has_values(trace):
        return []
    flows = Flows(trace)
    subjects = [Subject(trace, course) for course in zeros(trace, LEAST_STEPS - 1)]
    dead = [subject for subject in subjects if _is_dead(trace, flows, subject)]
    return [_finding(of_log) for of_log in grouped(dead, lambda subject: subject.course.log)]


def _is_dead(trace: Trace, flows: Flows, subject: Subject) -> bool:
    site = subject.site
    names = {name.rpartition("aten.")[2].partition(".")[0] for name in operators(site)}
    if not names & _RECTIFIERS:
        return False
    graph = graph_row(trace, site.graph)
    if graph is None or graph.phase == "backward":
        return False
    flow = flows.of_launch(subject.course.launches[0])
    if names & _MAKE_ZEROS and _has_numbers(row for one in flow.outputs for row in one.after):
        return False
    return _has_numbers(row for one in flow.inputs for row in one.before)


def _has_numbers(rows: Iterable[ValueRow]) -> bool:
    """Return whether a floating-point tensor is not zero everywhere."""
    return any("float" in row.dtype and row.zero is not None and row.zero < row.looked_at for row in rows)


def _finding(dead: list[Subject]) -> Timed:
    subject = dead[0]
    course = subject.course
    return subject.place_at(0).time_unix_ns, Finding(
        kind="dead_activation",
        severity="warning",
        title=f"{subject.name}, the output of {fused(subject.site)}{subject.line}, is zero everywhere in every step",
        proof=[
            f"All {course.numel:,} elements are zero in {plural(len(course.steps), 'step')},"
            f" {course.steps[0]} to {course.steps[-1]}",
            *others_text(len(dead) - 1, "behind a rectifier stayed zero in every step"),
        ],
        rule=rule_of(__doc__),
        evidence={"numel": course.numel, "steps": len(course.steps), "tensors": len(dead)},
        **subject.fields(0),
    )
