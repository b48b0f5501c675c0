"""Finds frames whose recompiles take much of a run."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.compiles.queries.compile_steps import compile_time, steps_of_compiles
from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.compiles.called_at_breaks import LEAST_RECOMPILE_NS, LEAST_RUN_SHARE, called_at_breaks
from stepscope.viewer.findings.evidence import Evidence, grouped
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.rows import RunSplit

LEAST_STEPS, STEP_SHARE = 3, 0.25


class CostlyRecompiles(NamedTuple):
    """The recompiles of one frame of a log."""

    events: list[CompileEvent]
    steps: list[int]
    duration_ns: int
    run_ns: int
    """Time of all steps of the log."""


def costly_recompiles(evidence: Evidence) -> list[CostlyRecompiles]:
    """Return the frames whose recompiles are worth a finding of their own; none that reached the limit."""
    events = evidence.compile_events("recompile")
    if not events or not evidence.is_recorded:
        return []
    limited = {(event.log, event.frame_id) for event in evidence.compile_events("recompile_limit")}
    called = called_at_breaks(evidence)
    limited |= called.frames | called.resumed
    runs = {run.log: run for run in run_splits(evidence.trace)}
    frames = grouped(events, lambda event: (event.log, event.frame_id))
    found = [
        _costs(evidence, group, runs[group[0].log])
        for group in frames
        if len(group) >= LEAST_STEPS and group[0].log in runs and (group[0].log, group[0].frame_id) not in limited
    ]
    return [one for one in found if one is not None]


def _costs(evidence: Evidence, group: list[CompileEvent], run: RunSplit) -> CostlyRecompiles | None:
    compiles = [(event.log, event.compile_id) for event in group]
    steps = sorted(set(steps_of_compiles(evidence.trace, compiles).values()))
    took = compile_time(evidence.trace, compiles) or 0
    is_often = len(steps) >= max(LEAST_STEPS, STEP_SHARE * run.steps)
    is_long = took >= max(LEAST_RECOMPILE_NS, LEAST_RUN_SHARE * run.duration_ns)
    is_known = run.duration_ns > 0
    return CostlyRecompiles(group, steps, took, run.duration_ns) if is_known and is_often and is_long else None
