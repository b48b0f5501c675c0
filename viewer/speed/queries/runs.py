"""Queries where the time of the typical steps of each log goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.speed.queries.launch_costs import device_time
from stepscope.viewer.speed.queries.splits import all_splits
from stepscope.viewer.speed.queries.verdict import run_verdict
from stepscope.viewer.speed.rows import PART_NAMES, Part, PartKind, RunSplit, StepSplit, TypicalSteps, in_order
from stepscope.viewer.store.trace import Trace

LEAST_TYPICAL = 4
"""Minimum number of steps of which only the middle half by duration is typical; of fewer, all are."""


def run_splits(trace: Trace) -> list[RunSplit]:
    """Return the split of each log that has steps with calls."""
    return [run for run, _ in trace.once(_all)]


def typical_steps(trace: Trace) -> dict[int, TypicalSteps]:
    """Return the typical steps of each log that has steps with calls, by log."""
    return {run.log: typical for run, typical in trace.once(_all)}


def _all(trace: Trace) -> list[tuple[RunSplit, TypicalSteps]]:
    ranks = {run.log: run.rank for run in list_runs(trace)}
    found = [_run(log, ranks.get(log), list(splits.values())) for log, splits in all_splits(trace)]
    launching = {run.log: typical.steps for run, typical in found if "launching" in typical.times}
    busy = device_time(trace, launching) if launching else {}
    return [(replace(run, verdict=run_verdict(run, _each(busy.get(run.log), run))), typical) for run, typical in found]


def _each(total_ns: int | None, run: RunSplit) -> int | None:
    return round(total_ns / run.typical_steps) if total_ns is not None and run.typical_steps else None


def _run(log: int, rank: int | None, splits: Sequence[StepSplit]) -> tuple[RunSplit, TypicalSteps]:
    """Return the split of the steps of one log, of which there is at least one."""
    typical = _typical(splits)
    parts = _mean(typical)
    total, compiling = sum(one.duration_ns for one in splits), sum(one.of("compile") for one in splits)
    mean_ns = sum(part.duration_ns for part in parts)
    run = RunSplit(log, rank, len(splits), total, compiling, len(typical), mean_ns, parts, None)
    times: dict[PartKind, list[int]] = {kind: [one.of(kind) for one in typical] for kind in PART_NAMES}
    return run, TypicalSteps(
        [one.step for one in typical],
        [(one.start_ns, one.end_ns) for one in typical],
        {kind: of_steps for kind, of_steps in times.items() if any(of_steps)},
    )


def _typical(splits: Sequence[StepSplit]) -> list[StepSplit]:
    """Return the steps that compiled nothing, without the fastest and the slowest quarter, in their order; if all steps
    compiled, all of them. The first step is left out, since it may warm up."""
    quiet = [one for one in splits[1:] if not one.of("compile")] or list(splits)
    if len(quiet) >= LEAST_TYPICAL:
        quiet.sort(key=lambda one: one.duration_ns)
        cut = len(quiet) // 4
        quiet = quiet[cut : len(quiet) - cut]
    return sorted(quiet, key=lambda one: one.step)


def _mean(splits: Sequence[StepSplit]) -> list[Part]:
    sums: Counter[tuple[PartKind, SourceLine | None]] = Counter()
    for one in splits:
        for part in one.parts:
            sums[part.kind, part.source] += part.duration_ns
    return in_order({key: round(value / len(splits)) for key, value in sums.items()})
