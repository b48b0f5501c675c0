"""At the peak of the run, a backward graph keeps what it computed again for several regions of
`torch.utils.checkpoint`, although the backward pass needs one region after the other. The recomputed activations take
twice as much as those of the largest region or more, and what is beyond the largest region is at least 25 % of the peak
and 1 MiB. The order in which a graph computes is the compiler's: its partitioner and its scheduler may compute regions
again long before they are needed, for example where one graph runs the same checkpointed blocks twice
(https://github.com/pytorch/pytorch/issues/193193). Smaller graphs keep fewer regions alive. Without lifetimes nothing
is told."""

from __future__ import annotations

import re

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_index import moment_of, named_graph
from stepscope.viewer.memory.queries.peak_parts import parts_of
from stepscope.viewer.memory.queries.peak_rows import PeakParts
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, capitalized, format_bytes, plural

SUMMARY = "Recomputed activations of several checkpointed regions are alive together"
TITLE_IS_MEASURED = True

LEAST_SHARE, LEAST_BYTES = 0.25, 1 << 20
_CHECKPOINT = re.compile(r"checkpoint\w*\(")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log and device whose peak it raises."""
    peaks = [peak for peak in run_peaks(evidence.trace) if peak.live_bytes and peak.graph is not None]
    found = [parts_of(evidence.trace, peak) for peak in peaks]
    return [_finding(evidence.trace, one) for one in found if _is_told(one)]


def _is_told(one: PeakParts) -> bool:
    sizes = [region.storage_bytes for region in one.recomputed]
    beyond = sum(sizes[1:])
    return bool(sizes) and beyond >= max(sizes[0], LEAST_BYTES, LEAST_SHARE * one.peak.live_bytes)


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
