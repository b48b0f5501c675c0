"""Compiles: the list, and one compile with its stack, metrics, graphs, records and spans."""

from __future__ import annotations

from typing import Any

from viewer.ingest.lenient_json import loads
from viewer.queries import sql
from viewer.queries.artifacts import header_json, records_of_compile
from viewer.queries.graphs import graphs_of_compile
from viewer.queries.rows import CompileDetail, CompileRow, SourceLine, Span
from viewer.store.open import Trace

_COMPILES = """
    WITH held AS (
        SELECT log, compile_id, count(*) AS artifacts FROM records
        WHERE payload_bytes IS NOT NULL AND compile_id IS NOT NULL AND event <> 'chromium_event' GROUP BY ALL
    ), empty AS (
        SELECT r.log, r.compile_id FROM metrics m JOIN records r ON r.record = m.record
        WHERE m.name = 'graph_op_count' GROUP BY ALL HAVING max(m.number) = 0
    )
    SELECT c.log, c.compile_id, c.frame, c.file, c.line, c.function,
           CASE WHEN c.status = 'ok' AND empty.log IS NOT NULL THEN 'empty' ELSE c.status END,
           c.attempts, c.start_unix_ns,
           c.duration_ns, c.cache, c.recompile_reason, c.graph_break_reason, c.failure, coalesce(held.artifacts, 0)
    FROM compiles c LEFT JOIN held ON held.log = c.log AND held.compile_id = c.compile_id
         LEFT JOIN empty ON empty.log = c.log AND empty.compile_id = c.compile_id
"""


def list_compiles(trace: Trace) -> list[CompileRow]:
    """All compiles in the order in which they began."""
    return [CompileRow(*row) for row in sql.rows(trace, f"{_COMPILES} ORDER BY c.log, c.start_unix_ns, c.compile")]


def compile_detail(trace: Trace, log: int, compile_id: str) -> CompileDetail | None:
    """One compile of one log; None when there is none."""
    row = sql.row(trace, f"{_COMPILES} WHERE c.log = ? AND c.compile_id = ?", [log, compile_id])
    if row is None:
        return None
    held = sql.row(trace, "SELECT stack, metrics FROM compiles WHERE log = ? AND compile_id = ?", [log, compile_id])
    stack, metrics = held or (None, None)
    return CompileDetail(
        row=CompileRow(*row),
        stack=[SourceLine(**frame) for frame in sql.json_value(stack) or []],
        metrics=_metrics(trace, sql.json_value(metrics) or []),
        graphs=graphs_of_compile(trace, log, compile_id),
        records=records_of_compile(trace, log, compile_id),
        spans=_spans(trace, log, compile_id),
    )


def neighbours(trace: Trace, row: CompileRow) -> tuple[CompileRow | None, CompileRow | None]:
    """The compiles that began before and after one, in its log."""
    rows = sql.rows(trace, f"{_COMPILES} WHERE c.log = ? ORDER BY c.start_unix_ns, c.compile", [row.log])
    place = next(place for place, other in enumerate(rows) if other[1] == row.compile_id)
    before = CompileRow(*rows[place - 1]) if place else None
    return before, CompileRow(*rows[place + 1]) if place + 1 < len(rows) else None


def _metrics(trace: Trace, records: list[int]) -> dict[str, Any] | None:
    """Metrics of the last forward compile; those of a backward compile under `backward`."""
    merged: dict[str, Any] = {}
    for record in records:
        header = header_json(trace.header(record))
        for event in ("bwd_compilation_metrics", "aot_autograd_backward_compilation_metrics"):
            if isinstance(header.get(event), dict):
                merged["backward"] = header[event]
        if isinstance(header.get("compilation_metrics"), dict):
            merged = {**header["compilation_metrics"], **{k: v for k, v in merged.items() if k == "backward"}}
    return {key: _unpacked(value) for key, value in merged.items()} or None


def _unpacked(value: Any) -> Any:
    """Settings stand in the metrics as JSON within a text."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            return loads(value.encode())
        except ValueError:
            return value
    return value


def _spans(trace: Trace, log: int, compile_id: str) -> list[Span]:
    found = sql.rows(
        trace,
        "SELECT name, compile_id, depth, start_unix_ns - min(start_unix_ns) OVER () AS start_ns, duration_ns"
        " FROM spans WHERE log = ? AND compile_id = ? ORDER BY start_ns, depth",
        [log, compile_id],
    )
    return [Span(*row) for row in found]
