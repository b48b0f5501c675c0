"""From an address to the context of the pages of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewer.addresses import NotThere, Page, Request
from viewer.contexts import RecordShown, RecordsPage
from viewer.highlight import LIMIT_CHARS, language_of
from viewer.queries.rows import RecordDetail

if TYPE_CHECKING:
    from viewer.store.open import Trace

RECORDS_PER_PAGE = 200


def records_page(trace: Trace, request: Request) -> RecordsPage:
    from viewer.queries.artifacts import list_records

    log, offset = request.number("log"), max(0, request.number("offset") or 0)
    compile_id, kind, text = (request.text(name) for name in ("compile_id", "kind", "text"))
    page = list_records(
        trace, log=log, compile_id=compile_id, kind=kind, text=text, offset=offset, limit=RECORDS_PER_PAGE
    )
    return RecordsPage(page, log, compile_id, kind, text)


def record_page(trace: Trace, request: Request) -> RecordShown:
    from viewer.queries.artifacts import record_detail

    record = request.id("record")
    detail = record_detail(trace, record)
    if detail is None:
        raise NotThere(f"This trace holds no record {record}.")
    return show_record(detail)


def show_record(detail: RecordDetail) -> RecordShown:
    import orjson

    text = detail.payload or ""
    language = language_of(detail.row.event, detail.row.name, detail.row.encoding, text)
    if language == "json":
        try:
            text = orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
        except ValueError:  # cut short, or not JSON after all: shown as it is
            language = "text"
    return RecordShown(detail, text, language, len(text) > LIMIT_CHARS)


PAGES = (
    Page(
        "/records",
        "records.html",
        "Records",
        RecordsPage,
        records_page,
        ("log", "compile_id", "kind", "text", "offset"),
    ),
    Page("/records/{record}", "record.html", "Records", RecordShown, record_page),
)
