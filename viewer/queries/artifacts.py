"""Records: lists of them, and one with its header and payload."""

from __future__ import annotations

from typing import Any

from viewer.ingest.lenient_json import loads
from viewer.queries import sql
from viewer.queries.rows import RecordDetail, RecordPage, RecordRow
from viewer.store.open import Trace

_COLUMNS = "record, log, line, byte, time_unix_ns, source, event, name, encoding, compile_id, attempt, payload_bytes"
_KIND = "CASE WHEN event = 'artifact' THEN coalesce(name, event) ELSE event END"
_MATCH = f"""
    ($log IS NULL OR log = $log) AND ($compile_id IS NULL OR compile_id = $compile_id)
    AND ($text IS NULL OR contains(lower(concat_ws(' ', {_KIND}, name, source, compile_id)), lower($text)))
"""


def list_records(
    trace: Trace,
    *,
    log: int | None = None,
    compile_id: str | None = None,
    kind: str | None = None,
    text: str | None = None,
    offset: int = 0,
    limit: int = 200,
) -> RecordPage:
    """A page of the records that match. `kind` is an event or an artifact's name, `text` is looked for in kinds,
    names, sources and compile ids; the page's `kinds` count what matches without `kind`."""
    match = {"log": log, "compile_id": compile_id, "text": text}
    kinds = sql.rows_named(
        trace, f"SELECT {_KIND} AS kind, count(*) FROM records WHERE {_MATCH} GROUP BY kind ORDER BY 2 DESC, 1", match
    )
    found = sql.rows_named(
        trace,
        f"SELECT {_COLUMNS} FROM records WHERE {_MATCH} AND ($kind IS NULL OR {_KIND} = $kind)"
        " ORDER BY record LIMIT $limit OFFSET $offset",
        {**match, "kind": kind, "limit": limit, "offset": offset},
    )
    total = sum(count for name, count in kinds if kind is None or name == kind)
    return RecordPage([RecordRow(*row) for row in found], total, offset, limit, [(k, n) for k, n in kinds])


def record_detail(trace: Trace, record: int, limit: int = 400_000) -> RecordDetail | None:
    """One record with at most `limit` characters of its payload; None when there is none of that id."""
    row = sql.row(trace, f"SELECT {_COLUMNS} FROM records WHERE record = ?", [record])
    if row is None:
        return None
    shown = RecordRow(*row)
    payload = trace.payload(record).decode("utf-8", "replace") if shown.payload_bytes is not None else None
    return RecordDetail(
        row=shown,
        metadata=header_json(trace.header(record)),
        payload=None if payload is None else payload[:limit],
        truncated=payload is not None and len(payload) > limit,
    )


def records_of_compile(trace: Trace, log: int, compile_id: str) -> list[RecordRow]:
    """Everything logged under a compile id except chromium events."""
    found = sql.rows(
        trace,
        f"SELECT {_COLUMNS} FROM records WHERE log = ? AND compile_id = ? AND event <> 'chromium_event'"
        " ORDER BY record",
        [log, compile_id],
    )
    return [RecordRow(*row) for row in found]


def header_json(line: bytes) -> dict[str, Any]:
    """The JSON of a record's header line; under `unreadable` its text when that is no JSON."""
    brace = line.find(b"{", line.find(b"] "))
    try:
        value = loads(line[brace:]) if brace >= 0 else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"unreadable": line.decode("utf-8", "replace")}
