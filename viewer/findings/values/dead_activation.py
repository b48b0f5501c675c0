"""Every element that a launch of a forward graph with a rectifier (relu, relu6, hardtanh, clamp_min) wrote was zero, in
each of the four or more steps that were read, although the first of these launches read a floating-point input that is
not zero everywhere. No gradient flows through such an activation, so the layers before it no longer learn. The finding
names the first of these launches."""

from __future__ import annotations

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

SUMMARY = "An activation is zero in every step"
TITLE_IS_MEASURED = True

LEAST_STEPS = 4
_RECTIFIERS = ("relu", "relu6", "hardtanh", "clamp_min")


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
    if not any(name.rpartition("aten.")[2].partition(".")[0] in _RECTIFIERS for name in operators(site)):
        return False
    graph = graph_row(trace, site.graph)
    if graph is None or graph.phase == "backward":
        return False
    read = [row for one in flows.of_launch(subject.course.launches[0]).inputs for row in one.before]
    return any("float" in row.dtype and row.zero is not None and row.zero < row.looked_at for row in read)


def _finding(dead: list[Subject]) -> Timed:
    subject = dead[0]
    course = subject.course
    return subject.place_at(0).time_unix_ns, Finding(
        kind="dead_activation",
        severity="warning",
        title=f"{subject.name}, the output of {fused(subject.site)}{subject.line}, is zero everywhere in every step",
        proof=[
            f"{course.numel:,} of {course.numel:,} elements are zero in {plural(len(course.steps), 'step')},"
            f" {course.steps[0]} to {course.steps[-1]}",
            *others_text(len(dead) - 1, "behind a rectifier are zero in every step"),
        ],
        rule=rule_of(__doc__),
        evidence={"numel": course.numel, "steps": len(course.steps), "tensors": len(dead)},
        **subject.fields(0),
    )
