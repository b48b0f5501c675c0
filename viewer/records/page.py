"""From an address to the context of the pages of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.contexts import RecordShown, RecordsPage

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace

RECORDS_PER_PAGE = 200
LINES_AROUND = 4


def records_page(trace: Trace, request: Request) -> RecordsPage:
    from stepscope.viewer.records.queries.artifacts import list_records

    log, offset = request.number("log"), max(0, request.number("offset") or 0)
    compile_id, kind, text = (request.text(name) for name in ("compile_id", "kind", "text"))
    page = list_records(
        trace, log=log, compile_id=compile_id, kind=kind, text=text, offset=offset, limit=RECORDS_PER_PAGE
    )
    return RecordsPage(page, log, compile_id, kind, text)


def record_page(trace: Trace, request: Request) -> RecordShown:
    from stepscope.viewer.records.queries.artifacts import payload_lines, record_detail, record_neighbours
    from stepscope.viewer.records.queries.record_view import record_view

    record = request.id("record")
    detail, view = record_detail(trace, record), record_view(trace, record)
    if detail is None or view is None:
        raise NotThere(f"This trace holds no record {record}.")
    line = request.optional_id("line")
    first = max(1, (line or 1) - LINES_AROUND)
    lines = [] if line is None else payload_lines(trace, record, first, line + LINES_AROUND)
    if line is not None and not 1 <= line < first + len(lines):
        raise NotThere(f"The payload of record {record} has no line {line}.")
    return RecordShown(detail, view, *record_neighbours(trace, detail.row), line, first, lines)


PAGES = (
    Page(
        "/records",
        "records/list.html",
        "Records",
        RecordsPage,
        records_page,
        ("log", "compile_id", "kind", "text", "offset"),
    ),
    Page("/records/{record}", "records/page.html", "Records", RecordShown, record_page, ("line",)),
)
