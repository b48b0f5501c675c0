"""Finds the places outside of compiled code in which typical steps spend much of their time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from stepscope.viewer.findings.evidence import Evidence
from stepscope.viewer.findings.speed.costs import steady_runs, steps_of_runs
from stepscope.viewer.speed.queries.gap_lines import delayed_in_calls, hot_line
from stepscope.viewer.speed.queries.gaps import (
    LEAST_NS,
    LEAST_SHARE,
    GapCost,
    costs_of_gaps,
    gap_costs,
    logs_of_call_steps,
    logs_with_fallbacks,
    lost_in_calls,
)
from stepscope.viewer.speed.queries.launch_costs import device_time
from stepscope.viewer.speed.queries.runs import typical_steps
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.store.trace import Trace


def costly_gaps(trace: Trace) -> list[tuple[RunSplit, GapCost]]:
    """Return the gaps that are worth a finding, the longest of each log first, with the run as it were without the time
    of the recorder in gaps and, as far as they are known, without the waits for a core of the machine. Only the time
    counts for which the thread computes, if it is known, or more if samples show that it passes at one line of the
    program, and on a GPU only the time in which the device is idle. If each call is a step, as in a server, waiting is
    no part of the step either."""
    return trace.once(_costly_gaps)


def _costly_gaps(trace: Trace) -> list[tuple[RunSplit, GapCost]]:
    found = _adjusted(Evidence(trace), gap_costs(trace))
    return [(run, cost) for run, cost in found if cost.part_ns >= max(LEAST_NS, LEAST_SHARE * run.typical_ns)]


def gaps_with_fallbacks(trace: Trace) -> list[tuple[RunSplit, GapCost]]:
    """Return the gaps, costly or not, in which Python runs a function because its compile was given up."""
    logs, steps = logs_with_fallbacks(trace), typical_steps(trace)
    found = _adjusted(Evidence(trace), {log: costs_of_gaps(trace, log, steps[log].steps) for log in logs & {*steps}})
    return [(run, cost) for run, cost in found if cost.fallbacks]


def _adjusted(evidence: Evidence, costs: Mapping[int, Sequence[GapCost]]) -> Iterator[tuple[RunSplit, GapCost]]:
    runs = [run for run in steady_runs(evidence) if run.log in costs]
    on_device = [run for run in runs if run.on_device]
    serving = logs_of_call_steps(evidence.trace) if costs else set()
    busy = device_time(evidence.trace, steps_of_runs(evidence, on_device)) if on_device else {}
    has_ranks = len({run.rank for run in evidence.runs}) > 1
    for run in runs:
        idle_ns = run.typical_ns
        if run in on_device:
            idle_ns = run.typical_ns - round(busy[run.log] / run.typical_steps) if run.log in busy else 0
        own_ns = sum(cost.own_ns for cost in costs[run.log])
        is_server = run.log in serving
        inner = [cost for cost in costs[run.log] if not (is_server and cost.kind == "outside")]
        waits = _waits_for_core(evidence.trace, run, inner)
        core_ns = sum(waits.values())
        for cost in costs[run.log]:
            is_request = is_server and cost.kind == "outside"
            unknown_ns = 0 if is_request else cost.part_ns - waits.get(cost.key, 0)
            waited_ns = cost.part_ns - (cost.computed_ns if cost.computed_ns is not None else unknown_ns)
            if waited_ns and not is_request and not has_ranks:
                waited_ns = min(waited_ns, cost.part_ns - _at_one_line(evidence.trace, run, cost))
            own_ns += waited_ns if is_request else 0
            part_ns = min(cost.part_ns - waited_ns, idle_ns)
            whole_ns = max(part_ns, run.typical_ns - own_ns - core_ns)
            told = cost._replace(part_ns=part_ns, waited_ns=waited_ns, core_ns=core_ns)
            yield replace(run, typical_ns=whole_ns), told


def _waits_for_core(trace: Trace, run: RunSplit, gaps: Sequence[GapCost]) -> dict[Hashable, int]:
    """Return for how long (ns per step) the thread waits for a core of the machine in some gaps, by their keys, and in
    calls (None); nothing if that is unknown for calls."""
    delayed = delayed_in_calls(trace, run.log)
    lost_ns = lost_in_calls(trace, run.log, typical_steps(trace)[run.log].steps) if delayed is not None else None
    if delayed is None or lost_ns is None:
        return {}
    in_calls_ns = sum(part.duration_ns for part in run.parts if part.kind in ("kernels", "host"))
    found: dict[Hashable, int] = {None: min(lost_ns, round(delayed * in_calls_ns))}
    for gap in gaps:
        hot = hot_line(trace, run.log, gap.spans)
        share = hot.delayed if hot is not None else delayed if gap.computed_ns is not None else 0.0
        found[gap.key] = min(gap.part_ns - (gap.computed_ns or 0), round(share * gap.part_ns))
    return found


def _at_one_line(trace: Trace, run: RunSplit, cost: GapCost) -> int:
    """Return how much of a gap passes at one line of the program (ns), whether the thread computes there or waits for
    something else than a core of the machine."""
    hot = hot_line(trace, run.log, cost.spans)
    around = [place.source for place in (cost.before, cost.after) if place is not None]
    if hot is None or any(map(hot.encloses, around)):
        return 0
    return round(hot.share * (1 - hot.delayed) * cost.part_ns)
