"""Kernels that compute nothing and only copy a tensor to another layout (clone, copy or contiguous of a permuted,
transposed, sliced or expanded tensor) take at least 15 % and 1 ms of each typical step. On a GPU their time on the
device counts. Typical steps are those of medium duration in which nothing was compiled; there must be four. The finding
names the kernel that takes most of this time, and is a warning from 30 % on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import (
    Slowness,
    amount,
    facts_of,
    is_costly,
    one_per_cause,
    severity_of,
    steady_runs,
    steps_of_runs,
)
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.launch_costs import SiteCost, layout_copies
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.text.formats import plural

SUMMARY = "Copies to another layout take much of each step"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same kernel copies most."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    runs = steady_runs(evidence)
    steps = steps_of_runs(evidence, runs)
    found = layout_copies(evidence.trace, steps)
    for run in runs:
        copies = found.get(run.log, [])
        spent = round(sum(copy.duration_ns for copy in copies) / len(steps[run.log]))
        if copies and is_costly(spent, run.typical_ns):
            cause = copies[0].kernel, copies[0].source
            yield Slowness(cause, run, spent, partial(_finding, run, steps[run.log], copies, spent))


def _finding(run: RunSplit, steps: list[int], copies: list[SiteCost], spent: int) -> Finding:
    first = copies[0]
    others = f" and {plural(len(copies) - 1, 'other kernel')}" if len(copies) > 1 else ""
    return Finding(
        kind="contiguous_copies",
        severity=severity_of(spent / run.typical_ns),
        title=f"{amount(spent, run.typical_ns)} copies tensors to another layout, in {first.kernel}{others}",
        rule=rule_of(__doc__),
        evidence={
            **facts_of(run, spent),
            "kernels": [
                {"kernel": copy.kernel, "part_ns": round(copy.duration_ns / len(steps)), "launches": copy.launches}
                for copy in copies
            ],
        },
        page=f"/launches/{first.launch}",
        rank=run.rank,
        log=run.log,
        graph=first.graph,
        launch=first.launch,
        kernel=first.kernel,
        source=first.source,
    )
