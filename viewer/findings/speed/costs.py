"""Provides what findings about speed share: which steps count, and how severe a share of their time is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, grouped, logs_of
from stepscope.viewer.overview.rows import Finding, Severity
from stepscope.viewer.speed.queries.runs import run_splits, typical_steps
from stepscope.viewer.speed.queries.verdict import share_text
from stepscope.viewer.speed.rows import Part, RunSplit, TypicalSteps
from stepscope.viewer.text.formats import format_ns, plural

LEAST_STEPS = 4
"""Minimum number of typical steps from which something is concluded."""
LEAST_SHARE, WARNING_SHARE = 0.15, 0.3
LEAST_NS = 1_000_000
"""Minimum time per step that is worth a finding."""


def steady_runs(evidence: Evidence) -> list[RunSplit]:
    """Return the splits of logs that have enough steps in which nothing was compiled."""
    found = run_splits(evidence.trace)
    return [run for run in found if run.typical_steps >= LEAST_STEPS and not _compiles(run.parts)]


def steady_steps(evidence: Evidence, run: RunSplit) -> TypicalSteps:
    """Return the typical steps of a log."""
    return typical_steps(evidence.trace)[run.log]


def steps_of_runs(evidence: Evidence, runs: Iterable[RunSplit]) -> dict[int, list[int]]:
    """Return the numbers of the typical steps of logs, by log."""
    return {run.log: steady_steps(evidence, run).steps for run in runs}


class Slowness(NamedTuple):
    """What makes the steps of one log slow."""

    cause: Hashable
    """The same in all logs that share a finding."""
    run: RunSplit
    part_ns: int
    build: Callable[[], Finding]
    """Returns the finding about this log."""


def one_per_cause(evidence: Evidence, found: Iterable[Slowness]) -> list[Timed]:
    """Return the findings, one for all logs with the same cause: about that in which it takes the largest share."""
    return [_worst(evidence, group) for group in grouped(found, lambda one: one.cause)]


def _worst(evidence: Evidence, group: Sequence[Slowness]) -> Timed:
    worst = max(group, key=lambda one: one.part_ns / one.run.typical_ns)
    finding = worst.build()
    if len(group) > 1:
        others = plural(len(group) - 1, "other log")
        proof = [*finding.proof, f"In {others} it takes no larger share of a step."]
        finding = replace(finding, proof=proof, evidence={**finding.evidence, **logs_of(len(group))})
    return time_of(evidence, worst.run.log), finding


def _compiles(parts: Sequence[Part]) -> bool:
    return any(part.kind == "compile" for part in parts)


def is_costly(part_ns: float, whole_ns: float, least_ns: int = LEAST_NS) -> bool:
    return part_ns >= least_ns and part_ns >= LEAST_SHARE * whole_ns


def severity_of(share: float) -> Severity:
    return "warning" if share >= WARNING_SHARE else "info"


def amount(part_ns: int, whole_ns: int) -> str:
    """Return text like ``62 % of a step (25.3 ms of 41.0 ms)``."""
    return f"{share_text(part_ns, whole_ns)} of a step ({format_ns(part_ns)} of {format_ns(whole_ns)})"


def time_of(evidence: Evidence, log: int) -> int:
    """Return when the run of a log began (unix ns), 0 if unknown."""
    return next((run.start_unix_ns or 0 for run in evidence.runs if run.log == log), 0)


def facts_of(run: RunSplit, part_ns: int) -> dict[str, Any]:
    """Return the evidence of a finding about a part of typical steps."""
    share = round(part_ns / run.typical_ns, 4)
    return {"share": share, "part_ns": part_ns, "step_ns": run.typical_ns, "steps": run.typical_steps}


def step_page(evidence: Evidence, run: RunSplit) -> str:
    """Return the address of a typical step."""
    steps = steady_steps(evidence, run).steps
    return f"/steps/{steps[len(steps) // 2]}?log={run.log}"
