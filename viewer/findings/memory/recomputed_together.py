"""At the peak of the run, the backward pass keeps what it computed again for several parts of
`torch.utils.checkpoint`, although it needs one part after the other. The recomputed activations take twice as much as
those of the largest part or more, and what is beyond the largest part is at least 25 % of the peak and 1 MiB. The parts
are either checkpointed regions inside of one compiled graph, or compiled calls inside of one checkpoint in eager code.

The order in which a graph computes is the compiler's: its partitioner and its scheduler may compute regions again long
before they are needed, for example where one graph runs the same checkpointed blocks twice
(https://github.com/pytorch/pytorch/issues/193193). Smaller graphs keep fewer regions alive.

A checkpoint in eager code around many compiled calls, such as all blocks of a model that are compiled one by one, runs
all of them again before the backward graph of the last one. It is reported if three or more calls run again like this
in three steps or more, with no backward graph between them, and if they are more than half of the calls that run again
in their backward pass: several checkpoints of a few calls each are left out. Each of them must share inputs, such as
parameters, with another call of the forward pass, in the same order. This leaves out functions that are part of a
derivative, as for gradients of higher order, which run in the reverse order or only in backward passes; calls without
inputs of their own are left out with them. Parts of one function between graph breaks count as one call. Without
lifetimes nothing is told."""

from __future__ import annotations

import re

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_index import moment_of, named_graph
from stepscope.viewer.memory.queries.peak_parts import parts_of
from stepscope.viewer.memory.queries.peak_rows import PeakParts
from stepscope.viewer.memory.queries.recomputed_runs import RecomputedRun, recomputed_run
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.memory.rows import RunPeak
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, capitalized, format_bytes, plural

SUMMARY = "Recomputed activations of several checkpointed parts are alive together"
TITLE_IS_MEASURED = True

LEAST_SHARE, LEAST_BYTES, LEAST_STEPS = 0.25, 1 << 20, 3
_CHECKPOINT = re.compile(r"checkpoint\w*\(")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log and device whose peak it raises."""
    found = [_found(evidence.trace, peak) for peak in run_peaks(evidence.trace) if peak.live_bytes]
    return [one for one in found if one is not None]


def _found(trace: Trace, peak: RunPeak) -> Timed | None:
    parts = parts_of(trace, peak) if peak.graph is not None else None
    if parts is not None and _is_told(parts.peak, [region.storage_bytes for region in parts.recomputed]):
        return _finding(trace, parts)
    run = recomputed_run(trace, peak)
    if run is not None and run.steps >= LEAST_STEPS and _is_told(peak, run.sizes):
        return _finding_of_calls(trace, peak, run)
    return None


def _is_told(peak: RunPeak, sizes: list[int]) -> bool:
    beyond = sum(sizes[1:])
    return bool(sizes) and beyond >= max(sizes[0], LEAST_BYTES, LEAST_SHARE * peak.live_bytes)


def _finding(trace: Trace, one: PeakParts) -> Timed:
    peak, sizes = one.peak, [region.storage_bytes for region in one.recomputed]
    assert peak.graph is not None  # those without are no candidates
    moment = moment_of(trace, peak.call)
    call, callers = _lines(trace, one)
    return moment.time_unix_ns, Finding(
        kind="recomputed_together",
        severity="warning",
        title=f"{capitalized(named_graph(trace, peak.graph))} keeps the recomputed activations of"
        f" {plural(len(sizes), 'checkpointed region')} alive together, {format_bytes(sum(sizes))} of the peak of"
        f" {format_bytes(peak.live_bytes)}",
        proof=[
            f"The largest of these regions has {format_bytes(sizes[0])}: with one region at a time, this moment would"
            f" take {format_bytes(sum(sizes[1:]))} less.",
            _advice(callers),
        ],
        rule=rule_of(__doc__),
        evidence={
            "peak_bytes": peak.live_bytes,
            "recomputed_bytes": sum(sizes),
            "largest_region_bytes": sizes[0],
            "regions": len(sizes),
            "checkpointed_regions": one.checkpointed_regions,
        },
        page="/memory",
        rank=moment.rank,
        step=peak.step,
        graph=peak.graph,
        log=peak.log,
        source=call,
    )


def _finding_of_calls(trace: Trace, peak: RunPeak, run: RecomputedRun) -> Timed:
    called = [line for line in run.lines if _CHECKPOINT.search(line.code)] or run.lines
    source = called[0] if called else None
    saved = sum(run.sizes)
    moment = moment_of(trace, peak.call)
    return moment.time_unix_ns, Finding(
        kind="recomputed_together",
        severity="warning",
        title=f"{len(run.sizes)} compiled calls{place(source)} run again together in the backward pass, and what they"
        f" save is alive together: {format_bytes(saved)} of the peak of {format_bytes(peak.live_bytes)}",
        proof=[
            f"All of them run again before the backward graph of the last of them, in {plural(run.steps, 'step')}. For"
            " these calls, the checkpoint saves no memory at the peak.",
            f"The largest of them saves {format_bytes(run.sizes[0])}: with one call at a time, this moment would take"
            f" up to {format_bytes(saved - run.sizes[0])} less.",
            "One checkpoint in eager code is around all of these calls. A checkpoint for each block, or for a few"
            " blocks, computes one part again at a time.",
        ],
        rule=rule_of(__doc__),
        evidence={
            "peak_bytes": peak.live_bytes,
            "recomputed_bytes": saved,
            "share_of_peak": round(saved / peak.live_bytes, 3),
            "largest_call_bytes": run.sizes[0],
            "calls": len(run.sizes),
            "in_steps": run.steps,
        },
        page="/memory",
        rank=moment.rank,
        step=peak.step,
        graph=peak.graph,
        log=peak.log,
        source=source,
    )


def _lines(trace: Trace, one: PeakParts) -> tuple[SourceLine | None, list[SourceLine]]:
    """Return the line that calls the checkpoint, None if no line names it, and the lines of the compiled function that
    lead to it."""
    calls: dict[str, SourceLine] = {}
    callers: dict[str, SourceLine] = {}
    sites = [site for region in one.recomputed for site in region.sites]
    for stack in (stack for row in site_rows(trace, sites) for stack in row.stacks):
        call = next((frame for frame in stack if _CHECKPOINT.search(frame.code or "")), None)
        if call is not None:
            calls.setdefault(call.place, call)
            callers.setdefault(stack[0].place, stack[0])
    return next(iter(calls.values()), None), sorted(callers.values(), key=lambda line: (line.file, line.line))


def _advice(callers: list[SourceLine]) -> str:
    """Return what keeps fewer regions alive, with the lines that lead to the checkpoint if there are several."""
    by_itself = "compile each checkpointed block by itself"
    if len(callers) < 2:
        return (
            f"Smaller graphs keep fewer regions alive: {by_itself}, or split the graph with"
            " torch._dynamo.graph_break()."
        )
    lines = names_text([f"{basename(line.file)}:{line.line}" for line in callers])
    return (
        f"The checkpointed calls come from {lines}. Smaller graphs keep fewer regions alive: call"
        f" torch._dynamo.graph_break() between these lines, or {by_itself}."
    )
