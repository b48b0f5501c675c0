"""From an address to the context of the pages that look for something: text, tables, a statement, a place to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.web.addresses import Page, Request, Twin
from stepscope.viewer.web.contexts import JumpAnswer, News, SearchPage, SqlPage, TablesPage

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace


def search_page(trace: Trace, request: Request) -> SearchPage:
    from stepscope.viewer.records.queries.artifacts import list_records
    from stepscope.viewer.search.queries.search import search

    text, kind, compile_id = (request.text(name) for name in ("text", "kind", "compile_id"))
    regex, case = (request.text(name) == "1" for name in ("regex", "case"))
    log, offset = request.optional_id("log"), request.optional_id("offset") or 0
    piece = problem = None
    if text:
        try:
            piece = search(
                trace, text, regex=regex, case=case, log=log, kind=kind, compile_id=compile_id, offset=offset
            )
        except StepscopeError as error:
            problem = str(error)
    kinds = list_records(trace, limit=0).kinds
    logs = [str(source.path) for source in trace.logs]
    return SearchPage(text, regex, case, log, kind, compile_id, offset, piece, problem, kinds, logs)


def tables_page(trace: Trace, request: Request) -> TablesPage:
    from stepscope.viewer.search.queries.tables import list_tables

    return TablesPage(list_tables(trace))


def sql_page(trace: Trace, request: Request) -> SqlPage:
    from stepscope.viewer.search.ask import MEMORY_BYTES, MOST_ROWS, SECONDS, ask
    from stepscope.viewer.search.queries.tables import list_tables

    query = request.text("query")
    answer = problem = None
    if query:
        try:
            answer = ask(trace, query, gone=request.gone)
        except StepscopeError as error:
            problem = str(error)
    return SqlPage(query, answer, problem, MOST_ROWS, SECONDS, MEMORY_BYTES, list_tables(trace))


def jump_answer(trace: Trace, request: Request) -> JumpAnswer:
    from stepscope.viewer.search.queries.jump import jumps

    return JumpAnswer(jumps(trace, request.text("text") or ""))


def news(trace: Trace, request: Request) -> News:
    from stepscope.viewer.search.queries.tables import count_rows

    return News(count_rows(trace, "logs"), count_rows(trace, "records"))


SEARCH_QUERY = ("text", "log", "kind", "compile_id", "regex", "case", "offset")
PAGES = (
    Page("/search", "search/page.html", "Search", SearchPage, search_page, SEARCH_QUERY),
    Page("/tables", "search/tables.html", "SQL", TablesPage, tables_page),
    Page("/sql", "search/sql.html", "SQL", SqlPage, sql_page, ("query",)),
)
TWINS = (Twin("/jump.json", JumpAnswer, jump_answer, ("text",)), Twin("/news.json", News, news))
