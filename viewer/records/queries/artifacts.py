"""Queries lists of records, and one record with its header and payload."""

from __future__ import annotations

from typing import Any

from stepscope.tracer.schema.log_format import decode_payload, decode_payload_crlf
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.records.rows import RecordDetail, RecordPage, RecordRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SEARCHED_BYTES = 64_000_000
_LONGEST_LINE = 2_000
_COLUMNS = "record, log, line, byte, time_unix_ns, source, event, name, encoding, compile_id, attempt, payload_bytes"
_KIND = "CASE WHEN event = 'artifact' THEN coalesce(name, event) ELSE event END"
_MATCH = f"""
    ($log IS NULL OR log = $log) AND ($compile_id IS NULL OR compile_id = $compile_id)
    AND ($text IS NULL OR contains(lower(concat_ws(' ', {_KIND}, name, source, compile_id)), lower($text)))
"""

ORDERS = {
    "record": "record",
    "name": "name",
    "kind": "event",
    "compile": "compile_id",
    "attempt": "attempt",
    "size": "payload_bytes",
    "line": "line",
    "byte": "byte",
    "source": "source",
}
"""The expressions by which records can be sorted."""


def list_records(
    trace: Trace,
    *,
    log: int | None = None,
    compile_id: str | None = None,
    kind: str | None = None,
    text: str | None = None,
    sort: str | None = None,
    is_down: bool = False,
    offset: int = 0,
    limit: int = 200,
) -> RecordPage:
    """Return a page of the matching records, in log order by default; `kinds` counts those that match without `kind`.

    `kind` is an event or an artifact's name. `text` is searched for in kinds, names, sources and compile ids."""
    match = {"log": log, "compile_id": compile_id, "text": text}
    kinds = sql.rows(
        trace, f"SELECT {_KIND} AS kind, count(*) FROM records WHERE {_MATCH} GROUP BY kind ORDER BY 2 DESC, 1", match
    )
    found = sql.records(
        RecordRow,
        trace,
        f"SELECT {_COLUMNS} FROM records WHERE {_MATCH} AND ($kind IS NULL OR {_KIND} = $kind)"
        f" ORDER BY {sql.order_by(ORDERS, sort, is_down, 'record')} LIMIT $limit OFFSET $offset",
        {**match, "kind": kind, "limit": limit, "offset": offset},
    )
    total = sum(count for name, count in kinds if kind is None or name == kind)
    return RecordPage(found, total, offset, limit, [(k, n) for k, n in kinds])


def record_time(trace: Trace, record: int) -> int | None:
    """Return the Unix time of a record in ns, or None."""
    found: int | None = sql.number(trace, "SELECT time_unix_ns FROM records WHERE record = ?", [record])
    return found


def record_detail(trace: Trace, record: int, limit: int = 400_000) -> RecordDetail | None:
    """Return one record with at most `limit` characters of its payload, or None if there is no such record."""
    row = sql.record(RecordRow, trace, f"SELECT {_COLUMNS} FROM records WHERE record = ?", [record])
    if row is None:
        return None
    payload, is_cut = payload_start(trace, record, 4 * limit + 1)  # a character takes at most four bytes
    return RecordDetail(
        row=row,
        metadata=header_json(trace.header(record)),
        payload=None if payload is None else payload[:limit],
        truncated=is_cut or (payload is not None and len(payload) > limit),
    )


def payload_start(trace: Trace, record: int, limit_bytes: int) -> tuple[str | None, bool]:
    """Return the text of the first `limit_bytes` of a payload and whether there is more.

    The text is None if the record has no payload or its log cannot be read."""
    place = sql.row(trace, "SELECT log, payload_byte, payload_bytes, crlf FROM records WHERE record = ?", [record])
    if place is None or place[2] is None:
        return None, False
    log, start, length, crlf = place
    data = trace.log_bytes(log, start, min(length, limit_bytes))
    if not data:
        return None, False
    return (decode_payload_crlf if crlf else decode_payload)(data).decode("utf-8", "replace"), length > limit_bytes


def payload_lines(trace: Trace, record: int, first: int, last: int) -> list[str]:
    """Return the existing lines from `first` to `last` of a payload, counted from 1, with long lines cut."""
    text, _ = payload_start(trace, record, _SEARCHED_BYTES)
    return [line[:_LONGEST_LINE] for line in (text or "").split("\n")[max(0, first - 1) : last]]


def records_of_compile(trace: Trace, log: int, compile_id: str) -> list[RecordRow]:
    """Return all records of a compile id except chromium events."""
    return sql.records(
        RecordRow,
        trace,
        f"SELECT {_COLUMNS} FROM records WHERE log = ? AND compile_id = ? AND event <> 'chromium_event'"
        " ORDER BY record",
        [log, compile_id],
    )


def record_neighbours(trace: Trace, row: RecordRow) -> tuple[RecordRow | None, RecordRow | None]:
    """Return the previous and next records of the same compile id in the log, without chromium events and strings."""
    before, after = (
        sql.record(
            RecordRow,
            trace,
            f"SELECT {_COLUMNS} FROM records WHERE log = ? AND compile_id IS NOT DISTINCT FROM ? AND record {side} ?"
            f" AND event NOT IN ('chromium_event', 'str') ORDER BY record {order} LIMIT 1",
            [row.log, row.compile_id, row.record],
        )
        for side, order in (("<", "DESC"), (">", "ASC"))
    )
    return before, after


def header_json(line: bytes) -> dict[str, Any]:
    """Return the JSON of a header line, or its text under `unreadable` if it is not a JSON object."""
    brace = line.find(b"{", line.find(b"] "))
    try:
        value = loads(line[brace:]) if brace >= 0 else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"unreadable": line.decode("utf-8", "replace")}
