"""The local dashboard: what is asked for is answered here or handed on, and kept safe to open."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from stepscope.viewer.overview import page as overview_page
from stepscope.viewer.web import assets, rendering
from stepscope.viewer.web.addresses import GONE, Request
from stepscope.viewer.web.follow import Current
from stepscope.viewer.web.parts import failures

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from stepscope.viewer.store.trace import Trace

Headers = Sequence[tuple[bytes, bytes]]
NO_CACHE = (b"cache-control", b"no-cache")
FIRST_PAGE = overview_page.PAGES[0]
STATIC = "/static/"


class Answer(NamedTuple):
    """A whole answer."""

    body: bytes
    content_type: str
    status: int = 200
    headers: Headers = ()

    async def send(self, send: Send) -> None:
        headers = [
            (b"content-type", self.content_type.encode()),
            (b"content-length", str(len(self.body)).encode()),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Later:
    """An application that takes long to import: it is made by the first request for it, or before."""

    def __init__(self, create: Callable[[], ASGIApp]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._app: ASGIApp | None = None

    def made(self) -> ASGIApp:
        with self._lock:
            if self._app is None:
                self._app = self._create()
            return self._app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await asyncio.to_thread(self.made) if self._app is None else self._app
        await app(scope, receive, send)


class Front:
    """Answers for the first page, for scripts and for styles; the rest is made ready soon after the first page."""

    def __init__(self, current: Current) -> None:
        self.import_map = rendering.to_json(assets.served_import_map())
        self._current = current
        self._pages = Later(self._create_pages)
        self._twins = Later(self._create_twins)
        self._warming: threading.Thread | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.endswith(".json") and not path.startswith(STATIC):
            await self._twins(scope, receive, send)
            return
        answer = await self._answer(path, scope)
        if answer is None:
            await self._pages(scope, receive, send)
            return
        await answer.send(send)
        if path == FIRST_PAGE.path and self._warming is None:
            # Waited for when the server ends: a thread that is cut off keeps DuckDB's objects, and that is printed.
            self._warming = threading.Thread(target=self._warm)
            self._warming.start()

    async def _answer(self, path: str, scope: Scope) -> Answer | None:
        """None: the others answer, who also tell what went wrong."""
        if path.startswith(STATIC):
            return static(path.removeprefix(STATIC), scope)
        if path != FIRST_PAGE.path:
            return None
        try:
            return await asyncio.to_thread(self._first_page, query_of(scope))
        except Exception:
            return None

    def _first_page(self, query: dict[str, str]) -> Answer:
        with self._current.use() as reading:
            with failures() as failed:
                built = FIRST_PAGE.build(reading.trace, Request({}, query))
            context = {**rendering.context_of(built), "not_shown": failed}
            html = rendering.page(reading, FIRST_PAGE.template, FIRST_PAGE.section, context, self.import_map)
        return Answer(html.encode(), "text/html; charset=utf-8")

    def _create_pages(self) -> ASGIApp:
        from stepscope.viewer.web.dashboard import create_pages

        return create_pages(self._current, self.import_map)

    def _create_twins(self) -> ASGIApp:
        from stepscope.viewer.web.api import create_api
        from stepscope.viewer.web.dashboard import Dashboard

        return create_api(Dashboard(self._current, self.import_map))

    def _warm(self) -> None:
        self._pages.made()
        self._twins.made()


def query_of(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def static(name: str, scope: Scope) -> Answer | None:
    """A script or a style. Under the address that names its content a browser may keep it; under any other it asks
    again, and is told when it has it already."""
    try:
        content = assets.content(name)
    except KeyError:
        return None
    version = assets.version(content)
    kept = query_of(scope).get("v") == version
    headers = [
        (b"cache-control", b"public, max-age=31536000, immutable" if kept else b"no-cache"),
        (b"etag", f'"{version}"'.encode()),
    ]
    known = dict(scope["headers"]).get(b"if-none-match", b"")
    content_type = assets.CONTENT_TYPES[PurePosixPath(name).suffix]
    if f'"{version}"'.encode() in known:
        return Answer(b"", content_type, 304, headers)
    return Answer(content, content_type, headers=headers)


def security_headers(import_map: str) -> Headers:
    policy = (
        "default-src 'none'",
        f"script-src 'self' {assets.csp_hash(import_map)}",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
    return [
        (b"content-security-policy", "; ".join(policy).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]


_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_OWN_SITES = (b"same-origin", b"none")
"""What a browser says of requests that a page of this server makes, and of addresses that were typed in."""


def refusal(scope: Scope) -> tuple[int, str] | None:
    """Why a request is not answered: a web page elsewhere may have made it, or have a name of its own point here."""
    headers = scope["headers"]
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:  # the port is free: `ssh -L` maps it
        return 400, "Open this dashboard as localhost or 127.0.0.1."
    origins = {value.decode("latin-1").lower() for name, value in headers if name == b"origin"}
    sites = {value for name, value in headers if name == b"sec-fetch-site"}
    if origins - {f"http://{hosts[0].lower()}"} or sites.difference(_OWN_SITES):
        return 403, "Another site made this request: type the address of this dashboard into the browser yourself."
    if scope["method"] not in ("GET", "HEAD"):
        return 405, "This dashboard answers only GET and HEAD."
    return None


class Guard:
    """Answers requests of this dashboard's own pages and no others, puts the security headers on every answer, and
    says when the client has gone. HEAD is answered like GET, without the body."""

    def __init__(self, app: ASGIApp, headers: Headers) -> None:
        self.app = app
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                kept = any(name == b"cache-control" for name, _ in own)
                message["headers"] = [*own, *self.headers, *(() if kept else (NO_CACHE,))]
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        refused = refusal(scope)
        if refused is not None:
            status, text = refused
            allow = [(b"allow", b"GET, HEAD")] if status == 405 else []
            body = rendering.to_json({"ok": False, "error": text}).encode()
            await Answer(body, "application/json", status, allow).send(guarded)
            return
        client = _Client(receive)
        watch = asyncio.create_task(client.watch())
        try:
            await self.app({**scope, "method": "GET", GONE: client.gone}, client.receive, guarded)
        except Exception as error:  # the page tells of it
            sys.stderr.write(f"stepscope: {scope['path']!r} could not be made: {type(error).__name__}\n")
        finally:
            client.gone.set()
            watch.cancel()


class _Client:
    """Whoever waits for an answer. What it sends behind its request is not looked at."""

    def __init__(self, receive: Receive) -> None:
        self.gone = threading.Event()
        """For the threads that make the answer."""
        self._receive = receive
        self._left = asyncio.Event()
        self._was_asked = False

    async def watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()
        self._left.set()

    async def receive(self) -> Message:
        if not self._was_asked:
            self._was_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}


def create_app(trace: Trace | Current) -> Guard:
    """The pages of a trace, and their JSON twins."""
    front = Front(trace if isinstance(trace, Current) else Current(trace))
    return Guard(front, security_headers(front.import_map))
