"""The dashboard as an ASGI application, which matches the address of a request to a route and sends its answer."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from stepscope.viewer.errors import StepscopeError, reason_of
from stepscope.viewer.graphs.queries.source_folder import source_folder
from stepscope.viewer.text.formats import to_json
from stepscope.viewer.text.source_links import EDITOR, SourceLinks
from stepscope.viewer.web import answers, assets, registry, render
from stepscope.viewer.web.addresses import (
    Download,
    MovedTo,
    NotThere,
    Page,
    Redirect,
    Request,
    Route,
    Twin,
)
from stepscope.viewer.web.answers import Answer
from stepscope.viewer.web.follow import Current, Reading
from stepscope.viewer.web.guard import GONE, RequestGuard, security_headers
from stepscope.viewer.web.parts import failures

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from stepscope.viewer.store.trace import Trace

FIRST_PAGE = "/"
STATIC = "/static/"
DESCRIPTION = "/openapi.json"
MOST_THREADS = 40
MOST_AT_ONCE = max(3, os.cpu_count() or 1)
"""Number of lasting answers that are built at the same time. More would take no less time, but more memory."""
AnyRoute = TypeVar("AnyRoute", bound=Route)


class Asked(NamedTuple):
    """The parts of an HTTP request that the dashboard uses."""

    path: str
    query: dict[str, str]
    headers: Mapping[bytes, bytes]
    gone: threading.Event

    @classmethod
    def of(cls, scope: Scope) -> Asked:
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))
        return cls(scope["path"], query, dict(scope["headers"]), scope[GONE])

    @property
    def is_for_data(self) -> bool:
        """Return whether the request is for JSON rather than a page."""
        return self.path.endswith(".json") and not self.path.startswith(STATIC)

    @property
    def address(self) -> tuple[str, frozenset[tuple[str, str]]]:
        return self.path, frozenset(self.query.items())

    @property
    def known_versions(self) -> bytes:
        """Return the versions of the answer that the browser has."""
        return self.headers.get(b"if-none-match", b"")

    def request(self, names: Mapping[str, str]) -> Request:
        # If-Range needs an ETag, which downloads lack, so the answer is the whole file.
        wanted = None if b"if-range" in self.headers else self.headers.get(b"range")
        return Request(names, self.query, self.gone, wanted.decode("latin-1") if wanted else None)


class App:
    """The application for one trace; the modules of other pages are imported soon after the first page."""

    def __init__(self, current: Current, source_link: str = EDITOR) -> None:
        self._source_link = source_link
        self.import_map = to_json(assets.served_import_map())
        self._current = current
        self._threads = ThreadPoolExecutor(MOST_THREADS, "answer")
        self._turns = threading.Semaphore(MOST_AT_ONCE)
        self._warming: threading.Thread | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked.of(scope)
        answer = self._kept(asked)
        if answer is None:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self.answer, asked)
        await answers.unless_known(answer, asked.known_versions).send(send)
        if asked.path == FIRST_PAGE and self._warming is None:
            # Not a daemon: if it were cut off at the end, DuckDB's objects would leak, which prints a warning.
            self._warming = threading.Thread(target=self._warm)
            self._warming.start()

    def answer(self, asked: Asked) -> Answer:
        try:
            return self._answer(asked)
        except NotThere as error:
            return self._error(asked, 404, str(error))
        except MovedTo as error:
            if asked.is_for_data:
                return self._error(asked, 404, "This log contains no record of it.")
            return answers.redirect(error.address)
        except StepscopeError as error:
            return self._error(asked, 422, str(error))
        except Exception as error:
            sys.stderr.write(f"stepscope: {asked.path!r} could not be created: {type(error).__name__}\n")
            return self._error(asked, 500, f"This page could not be created ({reason_of(error)}).")

    def _answer(self, asked: Asked) -> Answer:
        if asked.path.startswith(STATIC):
            name = asked.path.removeprefix(STATIC)
            return answers.asset(name, asked.query.get("v")) or _nothing()
        if asked.path == DESCRIPTION:
            from stepscope.viewer.web.openapi import description

            return answers.data(description())
        if asked.is_for_data:
            return self._twin(asked)
        found = match(asked.path, registry.routes())
        if found is None:
            is_folder = asked.path.endswith("/") and match(asked.path.rstrip("/"), registry.routes()) is not None
            return answers.redirect(asked.path.rstrip("/"), 307) if is_folder else _nothing()
        route, names = found
        request = asked.request(names)
        with self._current.use() as reading:
            if isinstance(route, Page):
                page = route
                return self._lasting(reading, asked, page, lambda: self._page(reading, page, request))
            if isinstance(route, Download):
                return answers.download(route.build(reading.trace, request))
            if isinstance(route, Redirect):
                return answers.redirect(route.build(reading.trace, request))
        return _nothing()

    def _kept(self, asked: Asked) -> Answer | None:
        """Return an answer that is kept, for which no thread is needed."""
        with self._current.use() as reading:
            return reading.answers.find(reading.key_of(asked.address))

    def _lasting(self, reading: Reading, asked: Asked, route: Page | Twin, build: Callable[[], Answer]) -> Answer:
        """Return the answer that `build` returns; if it lasts, it is built once and kept."""
        if not route.is_lasting:
            return build()
        key = reading.key_of(asked.address)

        def is_lasting(answer: Answer) -> bool:
            return answer.is_whole and reading.key_of(asked.address) == key

        def in_turn() -> Answer:
            with self._turns:
                return answers.tagged(build())

        return reading.answers.get(key, in_turn, is_lasting)

    def _page(self, reading: Reading, page: Page, request: Request) -> Answer:
        with failures() as failed:
            built = page.build(reading.trace, request)
        context = {**render.context_of(built), "not_shown": failed}
        links = self._links(reading.trace)
        text = render.page(reading, page.template, page.section, context, self.import_map, links)
        return answers.html(text, failed=failed)

    def _links(self, trace: Trace) -> SourceLinks:
        """Return how pages of `trace` link to lines of model source."""
        links = SourceLinks(self._source_link)
        return replace(links, folder=source_folder(trace)) if links.is_repository else links

    def _twin(self, asked: Asked) -> Answer:
        found = match(asked.path, registry.twins())
        if found is None:
            return _nothing()
        twin, names = found
        with self._current.use() as reading:
            return self._lasting(reading, asked, twin, lambda: _data(reading, twin, asked.request(names)))

    def _error(self, asked: Asked, status: int, message: str) -> Answer:
        is_data = asked.path.endswith((".json", "/raw")) or asked.path.startswith(STATIC)
        with self._current.use() as reading:
            # The error page needs the frame, which is missing if the overview itself fails.
            if is_data or (status == 500 and not reading.has_frame):
                return answers.data({"ok": False, "error": message}, status)
            context = {"status": status, "message": message}
            return answers.html(render.page(reading, "core/error.html", "", context, self.import_map), status)

    def _warm(self) -> None:
        for _ in registry.routes():
            pass


def _data(reading: Reading, twin: Twin, request: Request) -> Answer:
    with failures() as failed:
        found = twin.build(reading.trace, request)
    return answers.data(found, failed=failed)


def _nothing() -> Answer:
    raise NotThere("There is no page at this address.")


def match(path: str, routes: Iterable[AnyRoute]) -> tuple[AnyRoute, dict[str, str]] | None:
    """Return the first route that matches `path`, and its named path segments, or None."""
    for route in routes:
        found = _pattern(route.path).fullmatch(path)
        if found is not None:
            return route, found.groupdict()
    return None


@cache
def _pattern(path: str) -> re.Pattern[str]:
    """Compile a path such as ``/steps/{step}``, in which a name matches one segment."""
    parts = re.split(r"\{(\w+)\}", path)
    return re.compile("".join(f"(?P<{part}>[^/]+)" if i % 2 else re.escape(part) for i, part in enumerate(parts)))


def create_app(trace: Trace | Current, source_link: str = EDITOR) -> RequestGuard:
    """Return the application with the pages of a trace and their JSON twins."""
    app = App(trace if isinstance(trace, Current) else Current(trace), source_link)
    return RequestGuard(app, security_headers(app.import_map))
