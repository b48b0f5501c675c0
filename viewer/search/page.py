"""Builds the contexts of the pages of search, tables and SQL and of jumps, and registers their addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.search.ask import MEMORY_BYTES, MOST_ROWS, SECONDS, ask
from stepscope.viewer.search.queries.examples import EXAMPLES, Example
from stepscope.viewer.search.queries.jump import Jump, jumps
from stepscope.viewer.search.queries.result_file import csv_file, parquet_file
from stepscope.viewer.search.queries.search import SearchPiece, search
from stepscope.viewer.search.queries.tables import SqlAnswer, TableRow, count_rows, list_tables
from stepscope.viewer.search.result_views import ResultViews, ViewName, views_of
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Download, File, NotThere, Page, Request, Twin
from stepscope.viewer.web.parameters import COMPILE_ID, LOG, OFFSET, RECORD_KIND, TEXT, one_of, text

MOST_FILE_ROWS, FILE_BYTES = 100_000, 64 * 10**6
"""Maximum size of a downloaded result."""
CONTENT_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


@dataclass(frozen=True)
class SearchPage:
    text: str | None
    regex: bool
    case: bool
    log: int | None
    kind: str | None
    compile_id: str | None
    offset: int
    piece: SearchPiece | None
    """None if there is no text to search, or the search failed."""
    problem: str | None
    kinds: list[tuple[str, int]]
    """(event or artifact name, number of records), most frequent first."""
    logs: list[str]
    """Paths by number."""


@dataclass(frozen=True)
class TablesPage:
    tables: list[TableRow]


@dataclass(frozen=True)
class SqlPage:
    query: str | None
    answer: SqlAnswer | None
    problem: str | None
    most_rows: int
    seconds: float
    memory_bytes: int
    tables: list[TableRow]
    views: ResultViews | None
    """Pictures of the result; None if there is no result."""
    view: ViewName
    """What is shown: a picture and the table, or only the table."""
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class TraceSize:
    """Numbers that show whether a growing trace has changed since it was read."""

    logs: int
    records: int


@dataclass(frozen=True)
class JumpAnswer:
    jumps: list[Jump]


def search_page(trace: Trace, request: Request) -> SearchPage:
    wanted, kind, compile_id = (request.text(name) for name in ("text", "kind", "compile_id"))
    regex, case = (request.text(name) == "1" for name in ("regex", "case"))
    log, offset = request.optional_id("log"), request.optional_id("offset") or 0
    piece = problem = None
    if wanted:
        try:
            piece = search(
                trace, wanted, regex=regex, case=case, log=log, kind=kind, compile_id=compile_id, offset=offset
            )
        except StepscopeError as error:
            problem = str(error)
    kinds = list_records(trace, limit=0).kinds
    logs = [str(source.path) for source in trace.logs]
    return SearchPage(wanted, regex, case, log, kind, compile_id, offset, piece, problem, kinds, logs)


def tables_page(trace: Trace, request: Request) -> TablesPage:
    return TablesPage(list_tables(trace))


def sql_page(trace: Trace, request: Request) -> SqlPage:
    query = request.text("query")
    answer = problem = None
    if query:
        try:
            answer = ask(trace, query, gone=request.gone)
        except StepscopeError as error:
            problem = str(error)
    views = views_of(answer) if answer else None
    names: list[ViewName] = views.names if views else ["table"]
    view = next((name for name in names if name == request.text("view")), names[0])
    tables = list_tables(trace)
    return SqlPage(query, answer, problem, MOST_ROWS, SECONDS, MEMORY_BYTES, tables, views, view, EXAMPLES)


def result_file(trace: Trace, request: Request) -> File:
    query, form = request.text("query"), request.path["form"]
    if not query or form not in CONTENT_TYPES:
        raise NotThere("This address needs a statement, and a form that is csv or parquet.")
    answer = ask(trace, query, MOST_FILE_ROWS, answer_bytes=FILE_BYTES, gone=request.gone)
    name = f"result-first-{len(answer.rows)}" if answer.more else "result"
    return File(csv_file(answer) if form == "csv" else parquet_file(answer), CONTENT_TYPES[form], f"{name}.{form}")


def jump_answer(trace: Trace, request: Request) -> JumpAnswer:
    return JumpAnswer(jumps(trace, request.text("text") or ""))


def news(trace: Trace, request: Request) -> TraceSize:
    return TraceSize(count_rows(trace, "logs"), count_rows(trace, "records"))


SEARCHED = (
    TEXT,
    LOG,
    RECORD_KIND,
    COMPILE_ID,
    one_of("regex", ["1"], "Take the text for a regular expression (RE2)."),
    one_of("case", ["1"], "Distinguish upper case from lower case."),
    OFFSET,
)
ROUTES = (
    Page("/search", "search/page.html", "Search", SearchPage, search_page, SEARCHED, is_lasting=False),
    Page("/tables", "search/tables.html", "SQL", TablesPage, tables_page),
    Page(
        "/sql",
        "search/sql.html",
        "SQL",
        SqlPage,
        sql_page,
        (
            text("query", "One statement in the SQL of DuckDB."),
            one_of("view", get_args(ViewName), "How the result is shown; by default as a picture if there is one."),
        ),
        is_lasting=False,
    ),
    Download("/sql/{form}", result_file),
    Twin("/jump.json", JumpAnswer, jump_answer, (TEXT,), is_lasting=False),
    Twin("/news.json", TraceSize, news),
)
