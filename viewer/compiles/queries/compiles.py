"""Queries the list of compiles, and one compile with its stack, metrics, graphs, records and spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepscope.viewer.compiles.rows import CompileDetail, CompileRow
from stepscope.viewer.graphs.queries.graphs import graphs_of_compile
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.records.queries.artifacts import header_json, records_of_compile
from stepscope.viewer.steps.rows import Span
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_COMPILES = """
    WITH held AS (
        SELECT log, compile_id, count(*) AS artifacts FROM records
        WHERE payload_bytes IS NOT NULL AND compile_id IS NOT NULL AND event <> 'chromium_event' AND {these}
        GROUP BY ALL
    ), empty AS (
        SELECT log, compile_id FROM records JOIN metrics USING (record)
        WHERE metrics.name = 'graph_op_count' AND {these} GROUP BY ALL HAVING max(number) = 0
    )
    SELECT log, compile_id, frame, file, line, function,
           CASE WHEN status = 'ok' AND (log, compile_id) IN (SELECT (log, compile_id) FROM empty) THEN 'empty'
                ELSE status END,
           attempts, start_unix_ns, duration_ns, cache, recompile_reason, graph_break_reason, failure,
           coalesce(artifacts, 0)
    FROM compiles LEFT JOIN held USING (log, compile_id) WHERE {these} ORDER BY log, start_unix_ns, compile
"""
_WITHOUT_EFFECT = """
    SELECT log FROM compiles GROUP BY log HAVING log NOT IN (SELECT log FROM graphs) AND (
        bool_and(status = 'fallback') OR (bool_and(status IN ('fallback', 'ok')) AND log IN (
            SELECT log FROM records JOIN metrics USING (record)
            WHERE metrics.name = 'graph_op_count' GROUP BY log HAVING max(number) = 0
        ))
    )
"""


def list_compiles(trace: Trace) -> list[CompileRow]:
    """Return all compiles, by log and start time."""
    return [CompileRow(*row) for row in sql.rows(trace, _COMPILES.format(these="true"))]


def logs_without_effect(trace: Trace) -> set[int]:
    """Return the logs in which functions were compiled, and none of them to a graph: Python ran them, or their graphs
    were empty."""
    return {log for (log,) in sql.rows(trace, _WITHOUT_EFFECT)}


def output_codes(trace: Trace, rows: Sequence[CompileRow]) -> list[int]:
    """Return the number of Inductor wrappers in the log for each of `rows`."""
    found = sql.rows(
        trace,
        "SELECT log, compile_id, count(*) FROM records WHERE event = 'inductor_output_code'"
        " AND payload_bytes IS NOT NULL AND (log, compile_id) IN (SELECT unnest($1), unnest($2)) GROUP BY ALL",
        [[row.log for row in rows], [row.compile_id for row in rows]],
    )
    counts = {(log, compile_id): number for log, compile_id, number in found}
    return [counts.get((row.log, row.compile_id), 0) for row in rows]


def compile_detail(trace: Trace, log: int, compile_id: str) -> CompileDetail | None:
    """Return one compile of one log, or None if there is none."""
    row = sql.row(trace, _COMPILES.format(these="log = $1 AND compile_id = $2"), [log, compile_id])
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


def neighbours(trace: Trace, row: CompileRow) -> list[tuple[str, str | None] | None]:
    """Return (compile id, function) of the compiles started before and after `row` in its log, or None."""
    found = sql.row(
        trace,
        "SELECT * EXCLUDE compile_id FROM (SELECT compile_id, lag(compile_id) OVER began, lag(function) OVER began,"
        " lead(compile_id) OVER began, lead(function) OVER began FROM compiles WHERE log = ?"
        " WINDOW began AS (ORDER BY start_unix_ns, compile)) WHERE compile_id = ?",
        [row.log, row.compile_id],
    )
    before, of_before, after, of_after = found or (None,) * 4
    return [None if name is None else (name, function) for name, function in ((before, of_before), (after, of_after))]


def _metrics(trace: Trace, records: list[int]) -> dict[str, Any] | None:
    """Return the metrics of the last forward compile, with those of the last backward compile under `backward`."""
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
    """Parse a value that is JSON within a string, as settings are in the metrics."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            return loads(value.encode())
        except ValueError:
            return value
    return value


def _spans(trace: Trace, log: int, compile_id: str) -> list[Span]:
    return sql.records(
        Span,
        trace,
        "SELECT name, compile_id, depth, start_unix_ns - min(start_unix_ns) OVER () AS start_ns, duration_ns"
        " FROM spans WHERE log = ? AND compile_id = ? ORDER BY start_ns, depth",
        [log, compile_id],
    )
