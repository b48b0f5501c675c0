"""Memory figures that a reordering pass of the scheduler carried along, and what a full recomputation gave."""

from __future__ import annotations

from dataclasses import fields

from stepscope.tracer.records import RecomputeMismatch
from stepscope.viewer.ingest.decode import decode
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.queries import sql
from stepscope.viewer.queries.rows_of_memory import RecomputeDetail, RecomputeRow, ScheduledBufferRow
from stepscope.viewer.store.open import Trace

_ROWS = """
    SELECT r.recompute, r.log, l.rank, r.time_unix_ns, r.pass_name, r.swap, r.candidate, r.members, r.reasons,
           r.reason_snodes, r.peak_before_bytes, r.peak_after_bytes, r.allowed_peak_bytes, r.is_explained,
           r.peak_snodes, r.snodes, r.found_by, r.compile_id, r.graph, r.subgraph, r.record
    FROM recompute_mismatches r LEFT JOIN logs l ON l.log = r.log
"""
_JSON = (7, 8, 9, 14)


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
        differs=[i for i, (carried, recomputed) in enumerate(_figures(value)) if carried != recomputed],
        buffers=buffers,
        at_peak=[b for b in buffers if peak is not None and _is_alive(b, peak)],
    )


def _figures(value: RecomputeMismatch) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Carried along and recomputed, node by node."""
    carried = zip(value.carried_after_alloc_bytes, value.carried_after_free_bytes, strict=True)
    recomputed = zip(value.recomputed_after_alloc_bytes, value.recomputed_after_free_bytes, strict=True)
    return list(zip(carried, recomputed, strict=True))


def _is_alive(buffer: ScheduledBufferRow, node: int) -> bool:
    return buffer.first_snode <= node and (buffer.last_snode == -1 or buffer.last_snode >= node)


def _row(row: sql.Row) -> RecomputeRow:
    return RecomputeRow(*(sql.json_value(value) if i in _JSON else value for i, value in enumerate(row[:-1])))
