"""Storages that compiled calls allocated were freed only by Python's garbage collector, in at least three steps, so a
reference cycle held them. Until the collector runs, whose moment depends on the number of Python's objects and not on
their bytes, this memory is occupied, and the peak is higher. Of a buffer, at least half of the storages that outlived
their call died in collections. The holders are those of most storages that later died in a collection; the cycle leads
through them. The finding is a warning if one collection freed at least 1 MiB and a tenth of the peak of the run, and
for information from 64 KiB on; less is not reported. There is one finding per log."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    attributes,
    buffers_table,
    grouped,
    names_text,
    open_buffer,
    open_launch,
    rule_of,
)
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.memory.queries.garbage import CollectedBuffer, collected_buffers
from stepscope.viewer.memory.queries.graph_index import named_graph
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import format_bytes, holder_text, plural

SUMMARY = "Memory waits for the garbage collector"
TITLE_IS_MEASURED = True

_LAST = 2**62
LEAST_BYTES, WARNED_BYTES, WARNED_SHARE = 64 << 10, 1 << 20, 0.1


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log in which storages waited for the garbage collector."""
    found = [one for one in collected_buffers(evidence.trace) if one.most_bytes >= LEAST_BYTES]
    peaks: dict[int, int] = {}
    for peak in run_peaks(evidence.trace) if found else ():
        peaks[peak.log] = max(peaks.get(peak.log, 0), peak.live_bytes)
    of_logs = grouped(found, lambda one: one.log)
    return [(_LAST, _finding(evidence, buffers, peaks.get(buffers[0].log, 0))) for buffers in of_logs]


def _finding(evidence: Evidence, buffers: Sequence[CollectedBuffer], peak_bytes: int) -> Finding:
    first = buffers[0]
    most = max(one.most_bytes for one in buffers)
    names = f"{names_text([one.buffer for one in buffers])} of {named_graph(evidence.trace, first.graph)}"
    holders = list(dict.fromkeys(holder for one in buffers for holder in one.holders))
    held = f" through {holder_text(holders[0])}" if holders else ""
    made = [open_launch(first.launch)] if first.launch is not None else []
    links = [*made, *open_buffer(evidence.trace, first.graph, first.buffer)]
    return Finding(
        kind="reference_cycle",
        severity="warning" if most >= max(WARNED_BYTES, WARNED_SHARE * peak_bytes) else "info",
        title=f"Up to {format_bytes(most)} wait for the garbage collector: a reference cycle{held} keeps"
        f" {names}{place(first.source)}",
        proof=[
            f"{plural(sum(one.storages for one in buffers), 'storage')} of {plural(first.steps, 'step')} were freed"
            f" only by {plural(first.collections, 'garbage collection')},"
            f" {format_bytes(sum(one.storage_bytes for one in buffers))} together"
        ],
        links=links,
        rule=rule_of(__doc__),
        evidence={
            "most_bytes": most,
            "peak_bytes": peak_bytes or None,
            "storage_bytes": sum(one.storage_bytes for one in buffers),
            "storages": sum(one.storages for one in buffers),
            "steps": first.steps,
            "collections": first.collections,
            "holders": holders[:MOST_EXAMPLES],
            "buffers": buffers_table(buffers, "buffer", "storages", "storage_bytes"),
        },
        page=links[-1].page if links else f"/graphs/{first.graph}/memory",
        rank=evidence.rank_of(first.log),
        **attributes(first, "step", "graph", "launch", "kernel", "buffer", "source", "log"),
    )
