"""Finds frames whose recompiles take much of a run."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.compiles.queries.compile_steps import compile_time, steps_of_compiles
from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.evidence import Evidence, grouped
from stepscope.viewer.speed.queries.splits import run_splits

LEAST_RUN_SHARE, LEAST_RECOMPILE_NS, LEAST_STEPS = 0.2, 1_000_000_000, 3


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
    runs = {run.log: run.duration_ns for run in run_splits(evidence.trace)}
    frames = grouped(events, lambda event: (event.log, event.frame_id))
    open_frames = [group for group in frames if (group[0].log, group[0].frame_id) not in limited]
    found = [_costs(evidence, group, runs.get(group[0].log, 0)) for group in open_frames if len(group) >= LEAST_STEPS]
    return [
        one
        for one in found
        if len(one.steps) >= LEAST_STEPS
        and one.duration_ns >= max(LEAST_RECOMPILE_NS, LEAST_RUN_SHARE * one.run_ns)
        and one.run_ns > 0
    ]


def _costs(evidence: Evidence, group: list[CompileEvent], run_ns: int) -> CostlyRecompiles:
    compiles = [(event.log, event.compile_id) for event in group]
    steps = sorted(set(steps_of_compiles(evidence.trace, compiles).values()))
    return CostlyRecompiles(group, steps, compile_time(evidence.trace, compiles) or 0, run_ns)
