"""Memory grows from step to step: each of the last three or more steps in which a graph ran left the same buffer of
that graph behind, and the buffer was still alive when the recording ended, or when the log of a killed process broke
off (the holders are then known only if they were looked for before). Two patterns are not growth: buffers that only
earlier steps left behind, as caches, warm-up and optimizer state do; and a sliding window, where buffers of earlier
steps were freed after the same number of steps. Buffers with the same holders share one finding, and so do those that a
reference cycle through the same object holds; buffers without a known holder each have their own. If what is left of a
storage shows at most half of it, the finding says that views keep the storage. The finding is a warning from 1 MiB per
step, or from 64 KiB per step if that is 1 % of the peak of the run. Smaller growth is information only, and growth
under 4 KiB per step, such as losses and metrics in a list, is not reported. Tensors that six or more calls of a forward
graph saved for a backward pass, and that stayed alive together although no backward pass of these calls ran, are
reported, those of the last step only if they were freed, from 256 KiB and a tenth of the peak on; from 1 MiB and half
of the peak on this is a warning. An evaluation without torch.no_grad() whose losses are summed up, and a list of losses
with their graphs, are usual causes. The line is that which makes the first of these calls, if it had not called the
graph before. Of other forward graphs in training, buffers that each step from the first to the last left behind, in six
steps or more, and that were freed only after the last call are reported, as when the function that keeps them returns;
there is one finding per graph. It is for information, unless a look before step 18, 300 or 3000, when at least 1 MiB
had been left, found what held them: then the limits above apply."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from urllib.parse import quote

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
from stepscope.viewer.findings.memory.unused_saved import of_unused_saved
from stepscope.viewer.memory.queries.graph_index import named_graph
from stepscope.viewer.memory.queries.growth import freed_late, growth, holders_of, leak_of
from stepscope.viewer.memory.queries.leak_rows import GrowthRow
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.overview.rows import Finding, ProofLink, Severity
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, format_bytes, holder_text, plural

SUMMARY = "Memory grows from step to step"
TITLE_IS_MEASURED = True

_LAST = 2**62
LEAST_BYTES, WARNED_BYTES, MUCH_BYTES, WARNED_SHARE = 4 << 10, 64 << 10, 1 << 20, 0.01
"""Bytes per step of all buffers with the same holders, and the share of the peak."""
VIEW_SHARE = 2
"""A storage is so many times as large as what tensors show of it if most of it is out of use."""
_COLLECTED = {
    True: "; a garbage collection freed them, so a reference cycle held them",
    False: "; a garbage collection did not free them",
    None: "",
}


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per leak, most bytes per step first."""
    ranks = {run.log: run.rank for run in evidence.runs}
    leaks = [rows for rows in grouped(growth(evidence.trace) or (), leak_of) if _per_step(rows) >= LEAST_BYTES]
    leaks.sort(key=lambda rows: -_per_step(rows))
    peaks: defaultdict[int, int] = defaultdict(int)
    for peak in run_peaks(evidence.trace):
        peaks[peak.log] = max(peaks[peak.log], peak.live_bytes)
    found = [_finding(evidence.trace, rows, ranks.get(rows[0].log), peaks[rows[0].log]) for rows in leaks]
    found += _of_untold(found, of_unused_saved(evidence.trace, peaks, ranks, rule_of(__doc__)))
    late = [row for row in freed_late(evidence.trace) if row.bytes_per_step >= WARNED_BYTES]
    of_graphs = grouped(late, lambda row: (row.log, row.graph, row.steps[0], row.steps[-1]))
    late_ones = [_freed_late(evidence.trace, rows, ranks.get(rows[0].log), peaks[rows[0].log]) for rows in of_graphs]
    found += _of_untold(found, late_ones)
    return [(_LAST + i, one) for i, one in enumerate(found)]


def _of_untold(told: Sequence[Finding], found: Sequence[Finding]) -> list[Finding]:
    """Return the findings of graphs of which nothing that is as large has been told."""
    largest: defaultdict[int | None, int] = defaultdict(int)
    for one in told:
        largest[one.graph] = max(largest[one.graph], one.evidence["storage_bytes"])
    return [one for one in found if one.evidence["storage_bytes"] > largest[one.graph]]


def _per_step(rows: Sequence[GrowthRow]) -> int:
    return sum(row.bytes_per_step for row in rows)


def _severity(bytes_per_step: int, peak_bytes: int) -> Severity:
    is_much = bytes_per_step >= MUCH_BYTES
    is_share = bytes_per_step >= WARNED_BYTES and bytes_per_step >= WARNED_SHARE * peak_bytes
    return "warning" if is_much or is_share else "info"


def _names(trace: Trace, rows: Sequence[GrowthRow]) -> str:
    """Return names like ``buf2 and buf0 of graph 0/0 forward``; with several graphs each buffer has its own."""
    labels = {row.graph: named_graph(trace, row.graph) for row in rows}
    if len(labels) == 1:
        return f"{names_text([row.buffer for row in rows])} of {labels[rows[0].graph]}"
    return names_text([f"{row.buffer} of {labels[row.graph]}" for row in rows])


def _finding(trace: Trace, rows: Sequence[GrowthRow], rank: int | None, peak_bytes: int) -> Finding:
    row = rows[0]
    grows = _per_step(rows)
    steps = min(len(one.steps) for one in rows)
    return Finding(
        kind="growth",
        severity=_severity(grows, peak_bytes),
        title=_title(trace, rows),
        rule=rule_of(__doc__),
        evidence={
            "bytes_per_step": grows,
            "peak_bytes": peak_bytes or None,
            "storage_bytes": sum(row.storage_bytes for row in rows),
            "storages": sum(row.storages for row in rows),
            "steps": steps,
            "first_step": row.steps[0],
            "last_step": row.steps[-1],
            "holders": holders_of(rows)[:MOST_EXAMPLES],
            "freed_by_collection": row.freed_by_collection,
            "tensor_bytes": row.tensor_bytes,
            "buffers": buffers_table(rows, "buffer", "storages", "storage_bytes", "bytes_per_step"),
        },
        page=f"/memory?growth={row.graph}.{quote(row.buffer)}",
        rank=rank,
        proof=[_proof(rows, steps), *_of_views(rows)],
        links=_links(trace, rows),
        step=row.steps[-1],
        **attributes(row, "graph", "launch", "kernel", "buffer", "source", "log"),
    )


def _freed_late(trace: Trace, rows: Sequence[GrowthRow], rank: int | None, peak_bytes: int) -> Finding:
    row, grows = rows[0], _per_step(rows)
    size, storages = sum(one.storage_bytes for one in rows), sum(one.storages for one in rows)
    holders = holders_of(rows)
    held = f", held by {holder_text(holders[0])}" if holders else ""
    return Finding(
        kind="growth",
        severity=_severity(grows, peak_bytes) if holders else "info",
        title=f"Memory grew by {format_bytes(grows)} per step: {_names(trace, rows)}{_made_at(rows)} of each step"
        f" stayed alive until the last call{held}",
        rule=rule_of(__doc__),
        evidence={
            "bytes_per_step": grows,
            "storage_bytes": size,
            "storages": storages,
            "steps": len(row.steps),
            "first_step": row.steps[0],
            "last_step": row.steps[-1],
            "holders": holders[:MOST_EXAMPLES],
            "tensor_bytes": row.tensor_bytes,
            "buffers": buffers_table(rows, "buffer", "storages", "storage_bytes", "bytes_per_step"),
        },
        page=f"/graphs/{row.graph}/memory",
        rank=rank,
        proof=[
            f"{plural(storages, 'storage')} of steps {row.steps[0]} to {row.steps[-1]}, {format_bytes(size)} together,"
            f" were freed only after the last call{'' if holders else '; what kept them until then is not recorded'}",
            *_of_views(rows),
        ],
        links=_links(trace, rows),
        step=row.steps[-1],
        **attributes(row, "graph", "launch", "kernel", "buffer", "source", "log"),
    )


def _title(trace: Trace, rows: Sequence[GrowthRow]) -> str:
    grows, buffers = format_bytes(_per_step(rows)), f"{_names(trace, rows)}{_made_at(rows)}"
    stay, are = ("stay", "are") if len(rows) > 1 else ("stays", "is")
    holders = holders_of(rows)
    cycle = "a reference cycle through " if rows[0].freed_by_collection else ""
    held = f" and {are} held by {cycle}{holder_text(holders[0])}" if holders else ""
    return f"Memory grows by {grows} per step: {buffers} {stay} alive after each step{held}"


def _made_at(rows: Sequence[GrowthRow]) -> str:
    """Return the line of the model that made the buffers, as in `` (train.py:12)``, if it is the same for all."""
    lines = {f"{basename(row.source.file)}:{row.source.line}" for row in rows if row.source is not None}
    return f" ({lines.pop()})" if len(lines) == 1 else ""


def _proof(rows: Sequence[GrowthRow], steps: int) -> str:
    row, storages = rows[0], sum(row.storages for row in rows)
    return (
        f"At the end, {plural(storages, 'storage')} of steps {row.steps[-steps]} to {row.steps[-1]} were still alive, "
        f"{format_bytes(sum(row.storage_bytes for row in rows))} together{_COLLECTED[row.freed_by_collection]}"
    )


def _of_views(rows: Sequence[GrowthRow]) -> Iterator[str]:
    """Yield a sentence about each buffer of which only views of a small part are left."""
    for row in rows:
        size = row.storage_bytes // row.storages
        if row.tensor_bytes and row.tensor_bytes * VIEW_SHARE <= size:
            yield (
                f"Views that need only {format_bytes(row.tensor_bytes)} keep each storage of {row.buffer} alive, which"
                f" has {format_bytes(size)}; a clone() of them would let the storage be freed"
            )


def _links(trace: Trace, rows: Sequence[GrowthRow]) -> list[ProofLink]:
    """Return the links to the launch that made the first buffer last, and to that buffer."""
    row = rows[0]
    made = [open_launch(row.launch)] if row.launch is not None else []
    return [*made, *open_buffer(trace, row.graph, row.buffer)]
