"""Builds the readable view of a record from its header and payload in the log and from related records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.viewer.compiles.queries.stages import LINES_OF_THE_COMPILE, is_from_cache
from stepscope.viewer.ingest.bounds import NUMBERS, whole_number
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.ingest.torch_trace.kinds import kind_of
from stepscope.viewer.records.queries.artifacts import header_json, payload_start
from stepscope.viewer.records.rows import NoteView, RecordView
from stepscope.viewer.records.views.record import Around, Sibling
from stepscope.viewer.records.views.stacks import stack_view
from stepscope.viewer.records.views.view import view_of
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

PAYLOAD_LIMIT = 4_000_000
"""Maximum number of payload bytes in a view."""
_MOST_SIBLINGS = 20_000
_NAMES_LINES = re.compile(r'# File: |File \\?"[^"\n]*", line \d')


def record_view(trace: Trace, record: int) -> RecordView | None:
    """Return the view of one record, or None if there is no such record."""
    row = sql.row(
        trace,
        "SELECT log, event, name, encoding, compile_id, byte, header_bytes, source FROM records WHERE record = ?",
        [record],
    )
    if row is None:
        return None
    log, event, name, encoding, compile_id, byte, header_bytes, source = row
    line = trace.log_bytes(log, byte, header_bytes)
    if not line:
        kind = kind_of(event, name)
        gone = NoteView("The log cannot be read, so neither payload nor metadata can be shown.", warning=True)
        return RecordView(kind.title, kind.says, [gone])
    header = header_json(line)
    metadata = header.get(event)
    if event == "artifact" and isinstance(metadata, dict):
        name = metadata.get("name") if isinstance(metadata.get("name"), str) else name
    payload, is_cut = payload_start(trace, record, PAYLOAD_LIMIT)
    kind = kind_of(event, name)
    numbers = set(_file_numbers(header))
    if kind.names_files:
        numbers |= set(_file_numbers(_json(payload)))
    around = Around(strings_of(trace, log, numbers), _siblings(trace, log, compile_id, kind.related))
    view = view_of(event, name, encoding, metadata, payload, around)
    stack = stack_view(header.get("stack"), around.strings, "Stack of the writer; no compile was active")
    if stack is not None:
        view.blocks.append(stack)
    if is_from_cache(source or "") and _NAMES_LINES.search(payload or ""):
        view.blocks.insert(0, NoteView(LINES_OF_THE_COMPILE))
    if is_cut:
        view.blocks.insert(0, NoteView("Only the beginning is shown; the download contains all of it.", warning=True))
    return view


def strings_of(trace: Trace, log: int, numbers: set[int]) -> Mapping[int, str]:
    """Return entries of a log's string table; missing ones are taken from other logs, preferably of its parent."""
    if not numbers:
        return {}
    run = sql.row(trace, "SELECT run FROM logs WHERE log = ?", [log])
    parent = whole_number(loads(run[0].encode()).get("parent_pid")) if run and run[0] else None
    found = sql.rows(
        trace,
        "SELECT s.id, s.text FROM strings s JOIN logs l ON l.log = s.log WHERE list_contains($numbers, s.id)"
        " ORDER BY s.log = $log, coalesce(l.pid = $parent, false), s.log DESC",
        {"numbers": sorted(number for number in numbers if number in NUMBERS), "log": log, "parent": parent},
    )
    return dict(found)


def _siblings(trace: Trace, log: int, compile_id: str | None, events: tuple[str, ...]) -> list[Sibling]:
    if not events:
        return []
    found = sql.rows(
        trace,
        "SELECT record, event, byte, header_bytes FROM records"
        " WHERE log = $log AND compile_id IS NOT DISTINCT FROM $compile_id AND list_contains($events, event)"
        " ORDER BY record LIMIT $most",
        {"log": log, "compile_id": compile_id, "events": list(events), "most": _MOST_SIBLINGS},
    )
    return [
        Sibling(record, event, header_json(trace.log_bytes(log, byte, length)).get(event))
        for record, event, byte, length in found
    ]


def _json(payload: str | None) -> Any:
    try:
        return loads((payload or "").encode())
    except ValueError:
        return None


def _file_numbers(value: Any) -> Iterator[int]:
    """Yield the numbers of file names anywhere in a header or payload, which refer to the string table."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if type(item.get("filename")) is int:
                yield item["filename"]
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
