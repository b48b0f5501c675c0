"""Memory grows from step to step: each of the last three or more steps in which a graph ran left the same buffer of
that graph behind, and the buffer was still alive when the recording ended, or when the log of a killed process broke
off (the holders are then unknown). Two patterns are not growth: buffers that only earlier steps left behind, as caches,
warm-up and optimizer state do; and a sliding window, where buffers of earlier steps were freed after the same number of
steps. Buffers with the same holders share one finding; buffers without a known holder each have their own. The finding
is a warning from 1 MiB per step, or from 64 KiB per step if that is 1 % of the peak of the run. Smaller growth is
information only, and growth under 4 KiB per step, such as losses and metrics in a list, is not reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import quote

from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    attributes,
    buffers_table,
    grouped,
    names_text,
    rule_of,
)
from stepscope.viewer.memory.queries.graph_index import label_of
from stepscope.viewer.memory.queries.growth import growth, leak_of
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.memory.rows import GrowthRow
from stepscope.viewer.overview.rows import Finding, Severity
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes

SUMMARY = "Memory grows from step to step"
TITLE_IS_MEASURED = True

_LAST = 2**62
LEAST_BYTES, WARNED_BYTES, MUCH_BYTES, WARNED_SHARE = 4 << 10, 64 << 10, 1 << 20, 0.01
"""Bytes per step of all buffers with the same holders, and the share of the peak."""
_COLLECTED = {
    True: "; a garbage collection frees it, so a reference cycle retains it",
    False: "; a garbage collection does not free it",
    None: "",
}


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per leak, most bytes per step first."""
    ranks = {run.log: run.rank for run in evidence.runs}
    leaks = [rows for rows in grouped(growth(evidence.trace) or (), leak_of) if _per_step(rows) >= LEAST_BYTES]
    leaks.sort(key=lambda rows: -_per_step(rows))
    peaks: defaultdict[int, int] = defaultdict(int)
    for peak in run_peaks(evidence.trace) if leaks else ():
        peaks[peak.log] = max(peaks[peak.log], peak.live_bytes)
    return [
        (_LAST + i, _finding(evidence.trace, rows, ranks.get(rows[0].log), peaks[rows[0].log]))
        for i, rows in enumerate(leaks)
    ]


def _per_step(rows: Sequence[GrowthRow]) -> int:
    return sum(row.bytes_per_step for row in rows)


def _severity(bytes_per_step: int, peak_bytes: int) -> Severity:
    is_much = bytes_per_step >= MUCH_BYTES
    is_share = bytes_per_step >= WARNED_BYTES and bytes_per_step >= WARNED_SHARE * peak_bytes
    return "warning" if is_much or is_share else "info"


def _names(trace: Trace, rows: Sequence[GrowthRow]) -> str:
    """Return names like ``buf2, buf0 of 0/0 forward``; with several graphs each buffer has its own."""
    labels = {row.graph: label_of(trace, row.graph) for row in rows}
    if len(labels) == 1:
        return f"{names_text([row.buffer for row in rows])} of {labels[rows[0].graph]}"
    return names_text([f"{row.buffer} of {labels[row.graph]}" for row in rows])


def _finding(trace: Trace, rows: Sequence[GrowthRow], rank: int | None, peak_bytes: int) -> Finding:
    row = rows[0]
    held = f"; held by {row.holders[0]}" if row.holders else ""
    verb = "are" if len(rows) > 1 else "is"
    grows = _per_step(rows)
    steps = min(len(one.steps) for one in rows)
    return Finding(
        kind="growth",
        severity=_severity(grows, peak_bytes),
        title=(
            f"Memory grows by {format_bytes(grows)} per step: {_names(trace, rows)} {verb} still alive from each of "
            f"the last {steps} steps{held}"
            f"{_COLLECTED[row.freed_by_collection]}"
        ),
        rule=rule_of(__doc__),
        evidence={
            "bytes_per_step": grows,
            "peak_bytes": peak_bytes or None,
            "storage_bytes": sum(row.storage_bytes for row in rows),
            "storages": sum(row.storages for row in rows),
            "steps": steps,
            "first_step": row.steps[0],
            "last_step": row.steps[-1],
            "holders": row.holders[:MOST_EXAMPLES],
            "freed_by_collection": row.freed_by_collection,
            "buffers": buffers_table(rows, "buffer", "storages", "storage_bytes", "bytes_per_step"),
        },
        page=f"/memory?growth={row.graph}.{quote(row.buffer)}",
        rank=rank,
        step=row.steps[-1],
        **attributes(row, "graph", "launch", "kernel", "buffer", "source", "log"),
    )
