"""Memory figures that a reordering pass of the scheduler carried along, and what a full recomputation gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from stepscope.tracer.schema.records import RecomputeMismatch
from stepscope.viewer.ingest.decode import decode
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.memory.recompute_rows import LastUseRow, RecomputeDetail, RecomputeRow, SwappedNodeRow
from stepscope.viewer.memory.rows import ScheduledBufferRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ROWS = """
    SELECT r.recompute, r.log, l.rank, r.time_unix_ns, r.pass_name, r.swap, r.candidate, r.members, r.reasons,
           r.reason_snodes, r.peak_before_bytes, r.peak_after_bytes, r.allowed_peak_bytes, r.is_explained,
           r.peak_snodes, r.peak_snode, r.snodes, r.found_by, r.swapped, r.compile_id, r.graph, r.subgraph, r.record
    FROM recompute_mismatches r LEFT JOIN logs l ON l.log = r.log
"""
_JSON = (7, 8, 9, 14)
_SWAPPED = 18
_MOST_NAMES = 6


def recompute_mismatches(trace: Trace) -> list[RecomputeRow]:
    """All of them in the order in which they were found."""
    return [_row(row) for row in sql.rows(trace, f"{_ROWS} ORDER BY r.recompute")]


def recompute_detail(trace: Trace, recompute: int) -> RecomputeDetail | None:
    """One of them; None when there is none of that id."""
    found = sql.row(trace, f"{_ROWS} WHERE r.recompute = ?", [recompute])
    if found is None:
        return None
    row = _row(found)
    value = decode(RecomputeMismatch, loads(trace.whole_payload(found[-1])))
    names = [f.name for f in fields(value.buffers)]
    buffers = [ScheduledBufferRow(*b) for b in zip(*(getattr(value.buffers, n) for n in names), strict=True)]
    buffers.sort(key=lambda buffer: -buffer.alloc_bytes)
    peak = row.peak_snodes[0] if row.peak_snodes else None
    return RecomputeDetail(
        row=row,
        snode=value.snode,
        carried_after_alloc_bytes=value.carried_after_alloc_bytes,
        carried_after_free_bytes=value.carried_after_free_bytes,
        recomputed_after_alloc_bytes=value.recomputed_after_alloc_bytes,
        recomputed_after_free_bytes=value.recomputed_after_free_bytes,
        before_after_alloc_bytes=value.before_after_alloc_bytes,
        before_after_free_bytes=value.before_after_free_bytes,
        carried_alloc_bytes=value.carried_alloc_bytes,
        carried_free_bytes=value.carried_free_bytes,
        recomputed_alloc_bytes=value.recomputed_alloc_bytes,
        recomputed_free_bytes=value.recomputed_free_bytes,
        last_uses=_last_uses(value),
        swapped_snodes=[i for i, name in enumerate(value.snode) if name in (value.candidate, *value.group)],
        differs=_differs(value),
        buffers=buffers,
        at_peak=[b for b in buffers if peak is not None and _is_alive(b, peak)],
    )


def _differs(value: RecomputeMismatch) -> list[int]:
    """Nodes of which a figure that was carried along is not the recomputed one."""
    pairs = [
        (value.carried_after_alloc_bytes, value.recomputed_after_alloc_bytes),
        (value.carried_after_free_bytes, value.recomputed_after_free_bytes),
        (value.carried_alloc_bytes, value.recomputed_alloc_bytes),
        (value.carried_free_bytes, value.recomputed_free_bytes),
    ]
    known = [(carried, recomputed) for carried, recomputed in pairs if carried and recomputed]
    return [i for i in range(len(value.snode)) if any(carried[i] != recomputed[i] for carried, recomputed in known)]


def _last_uses(value: RecomputeMismatch) -> list[LastUseRow]:
    names, nodes = value.buffers, range(len(value.snode))
    last = {name: value.snode[i] for name, i in zip(names.name, names.last_snode, strict=True) if i in nodes}
    columns = zip(value.last_use_buffer, value.last_use_before, value.last_use_after, strict=True)
    return [LastUseRow(buffer, before, after, last.get(buffer)) for buffer, before, after in columns]


def _is_alive(buffer: ScheduledBufferRow, node: int) -> bool:
    return buffer.first_snode <= node and (buffer.last_snode == -1 or buffer.last_snode >= node)


def _row(row: sql.Row) -> RecomputeRow:
    values = [sql.json_value(value) if i in _JSON else value for i, value in enumerate(row[:-1])]
    values[_SWAPPED] = [SwappedNodeRow(**node, words=_words(node)) for node in sql.json_value(values[_SWAPPED])]
    return RecomputeRow(*values)


def _words(node: Mapping[str, Any]) -> str:
    parts = [
        f"{verb} {_names(node[column])}"
        for verb, column in (("computes", "operators"), ("calls", "kernels"), ("reads", "reads"), ("writes", "writes"))
        if node[column]
    ]
    what = " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    return f"{node['name']} {what or 'is a ' + node['node_kind']}."


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = list(names[:_MOST_NAMES]) + ([f"{more} more"] if more > 0 else [])
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)
