"""Builds the contexts of the pages about records, and returns the payload of a record as a file."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.tracer.schema.constants import OUTPUT_CODE
from stepscope.viewer.exports.queries.tables import payload_size
from stepscope.viewer.graphs.queries.graphs import graphs_of_compile
from stepscope.viewer.graphs.rows import GraphRow
from stepscope.viewer.records.queries.artifacts import (
    ORDERS,
    list_records,
    payload_lines,
    record_detail,
    record_neighbours,
)
from stepscope.viewer.records.queries.record_view import record_view
from stepscope.viewer.records.rows import RecordDetail, RecordPage, RecordRow, RecordView
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.byte_range import byte_range
from stepscope.viewer.web.addresses import Download, File, NotThere, Page, Request
from stepscope.viewer.web.order import Order, order_of, order_parameters
from stepscope.viewer.web.parameters import COMPILE_ID, LOG, OFFSET, RECORD, RECORD_KIND, TEXT, number

RECORDS_PER_PAGE = 200
LINES_AROUND = 4


@dataclass(frozen=True)
class RecordsPage:
    page: RecordPage
    log: int | None
    compile_id: str | None
    kind: str | None
    text: str | None
    order: Order


@dataclass(frozen=True)
class RecordShown:
    detail: RecordDetail
    view: RecordView
    previous: RecordRow | None
    """Previous record of the same compile, without chromium events."""
    next: RecordRow | None
    graphs: list[GraphRow]
    """The graph whose code the record is, else those of its compile, of its phase if it has one."""
    line: int | None
    """Requested line of the payload, counted from 1."""
    first_line: int
    """Number of the first of `lines`."""
    lines: list[str]
    """Requested line and the lines around it; empty if none was requested."""


def records_page(trace: Trace, request: Request) -> RecordsPage:
    log, offset = request.number("log"), max(0, request.number("offset") or 0)
    compile_id, kind, text = (request.text(name) for name in ("compile_id", "kind", "text"))
    order = order_of(request, ORDERS, "Records")
    page = list_records(
        trace,
        log=log,
        compile_id=compile_id,
        kind=kind,
        text=text,
        sort=order.sort,
        is_down=order.reverse,
        offset=offset,
        limit=RECORDS_PER_PAGE,
    )
    return RecordsPage(page, log, compile_id, kind, text, order)


def record_page(trace: Trace, request: Request) -> RecordShown:
    record = request.id("record")
    detail, view = record_detail(trace, record), record_view(trace, record)
    if detail is None or view is None:
        raise NotThere(f"This trace contains no record {record}.")
    line = request.optional_id("line")
    first = max(1, (line or 1) - LINES_AROUND)
    lines = [] if line is None else payload_lines(trace, record, first, line + LINES_AROUND)
    if line is not None and not 1 <= line < first + len(lines):
        raise NotThere(f"The payload of record {record} has no line {line}.")
    return RecordShown(
        detail, view, *record_neighbours(trace, detail.row), _graphs(trace, detail.row), line, first, lines
    )


def _graphs(trace: Trace, row: RecordRow) -> list[GraphRow]:
    found = graphs_of_compile(trace, row.log, row.compile_id) if row.compile_id else []
    own = [one for one in found if row.record == one.output_code or row.name == f"{OUTPUT_CODE}{one.local_graph}"]
    return own or [graph for graph in found if _phase(row) in (None, graph.phase)]


def _phase(row: RecordRow) -> str | None:
    """Return the phase of the graphs that a record such as ``aot_forward_graph`` is about."""
    return next((phase for phase in ("forward", "backward", "inference") if phase in row.event), None)


def raw_payload(trace: Trace, request: Request) -> File:
    """Return the payload of a record as it was logged, or the requested range of its bytes."""
    record = request.id("record")
    payload = trace.whole_payload(record)
    if not payload and payload_size(trace, record)[0] is None:
        raise NotThere(f"This trace contains no payload of a record {record}.")
    name, headers, size = f"record_{record}.txt", {"accept-ranges": "bytes"}, len(payload)
    try:
        part = byte_range(request.byte_range, size) if request.byte_range else None
    except ValueError:
        return File(b"", "text/plain", name, 416, {**headers, "content-range": f"bytes */{size}"})
    if part is None:
        return File(payload, "text/plain", name, headers=headers)
    headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return File(payload[part], "text/plain", name, 206, headers)


LISTED = (LOG, COMPILE_ID, RECORD_KIND, TEXT, *order_parameters(ORDERS), OFFSET)
ROUTES = (
    Page("/records", "records/list.html", "Records", RecordsPage, records_page, LISTED),
    Page(
        "/records/{record}",
        "records/page.html",
        "Records",
        RecordShown,
        record_page,
        (RECORD, number("line", "The line of the payload to show, counted from 1.")),
    ),
    Download("/records/{record}/raw", raw_payload),
)
