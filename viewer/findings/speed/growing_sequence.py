"""Steps become slower because a size that the generated code takes as a number grows: in six or more steps in which
nothing was compiled the size never shrinks, it ends at least half as large again as it began, and the graphs of the
last third of these steps take at least half as long again as those of the first third, and at least a millisecond more.
The share is the time that the steps take beyond the first three. The finding is a warning if that is 30 % or more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import mean

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import LEAST_NS, Slowness, one_per_cause, severity_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.graph_places import graph_places
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.queries.sizes import SizeCourse, size_courses
from stepscope.viewer.speed.queries.splits import step_splits
from stepscope.viewer.speed.rows import RunSplit, StepSplit
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns

SUMMARY = "Steps become slower as a size grows"

LEAST_STEPS, GROWTH, FIRST = 6, 1.5, 3


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same size grows."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    runs = {run.log: run for run in run_splits(evidence.trace) if run.steps > LEAST_STEPS}
    for log, courses in size_courses(evidence.trace, list(runs)).items():
        splits = step_splits(evidence.trace, log)
        found = (_of_course(evidence.trace, runs[log], course, splits) for course in courses)
        first = next((one for one in found if one is not None), None)
        if first is not None:
            yield first


def _of_course(trace: Trace, run: RunSplit, course: SizeCourse, splits: Mapping[int, StepSplit]) -> Slowness | None:
    known = [(size, splits[step]) for step, size in course.sizes.items() if step in splits]
    quiet = [(size, split) for size, split in known[1:] if not split.of("compile")]
    if not (_grows([size for size, _ in quiet]) and _slows(times := [_work(split) for _, split in quiet])):
        return None
    steps, sizes = [split.step for _, split in quiet], [size for size, _ in quiet]
    return Slowness(course.name, run, times[-1] - times[0], partial(_finding, trace, run, course, steps, sizes, times))


def _work(split: StepSplit) -> int:
    """Return the time of a step without that for data and other work between the steps."""
    return split.duration_ns - split.of("data") - split.of("outside")


def _grows(sizes: Sequence[int]) -> bool:
    rises = all(after >= before for before, after in pairwise(sizes))
    return len(sizes) >= LEAST_STEPS and rises and sizes[-1] >= GROWTH * sizes[0]


def _slows(times: Sequence[int]) -> bool:
    third = len(times) // 3
    early, late = mean(times[:third]), mean(times[-third:])
    return late >= GROWTH * early and late - early >= LEAST_NS


def _finding(
    trace: Trace, run: RunSplit, course: SizeCourse, steps: Sequence[int], sizes: Sequence[int], times: Sequence[int]
) -> Finding:
    source = graph_places(trace, [course.graph])[course.graph].source
    first = mean(times[:FIRST])
    beyond = sum(max(0.0, time - first) for time in times)
    share = beyond / sum(times)
    return Finding(
        kind="growing_sequence",
        severity=severity_of(share),
        title=f"Steps become slower, from {format_ns(times[0])} to {format_ns(times[-1])}, as {course.name} grows from"
        f" {sizes[0]:,} to {sizes[-1]:,} in steps {steps[0]} to {steps[-1]}",
        proof=[f"The time beyond that of the first {FIRST} steps is {100 * share:.0f} % of the time of these steps."],
        rule=rule_of(__doc__),
        evidence={
            "share": round(share, 4), "size": course.name, "first_size": sizes[0], "last_size": sizes[-1],
            "first_ns": times[0], "last_ns": times[-1], "steps": len(steps),
        },
        page=f"/steps/{steps[-1]}?log={run.log}",
        rank=run.rank,
        log=run.log,
        step=steps[-1],
        graph=course.graph,
        source=source,
    )  # fmt: skip
