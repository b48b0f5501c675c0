"""Restricts the dashboard to requests of its own pages and sets a strict content security policy."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from typing import TYPE_CHECKING

from stepscope.viewer.text.formats import to_json
from stepscope.viewer.web import assets
from stepscope.viewer.web.answers import Answer, Headers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

GONE = "stepscope.gone"
"""Key of the scope for the event that is set when the client has disconnected."""
NO_CACHE = (b"cache-control", b"no-cache")


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
"""Values of Sec-Fetch-Site for requests of this server's pages and for addresses that the user typed."""


def refusal(scope: Scope) -> tuple[int, str] | None:
    """Return status and reason if a request must be refused, as by CSRF or DNS rebinding, else None."""
    headers = scope["headers"]
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:  # any port is allowed, as `ssh -L` maps it
        return 400, "Open this dashboard as localhost or 127.0.0.1."
    origins = {value.decode("latin-1").lower() for name, value in headers if name == b"origin"}
    sites = {value for name, value in headers if name == b"sec-fetch-site"}
    if origins - {f"http://{hosts[0].lower()}"} or sites.difference(_OWN_SITES):
        return 403, "Another site made this request: type the address of this dashboard into the browser yourself."
    if scope["method"] not in ("GET", "HEAD"):
        return 405, "This dashboard answers only GET and HEAD requests."
    return None


class RequestGuard:
    """Middleware that refuses requests of other sites and adds security headers to every answer.

    It also reports when the client disconnects, and answers HEAD like GET without the body."""

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
            body = to_json({"ok": False, "error": text}).encode()
            await Answer(body, "application/json", status, allow).send(guarded)
            return
        client = _Client(receive)
        watch = asyncio.create_task(client.watch())
        try:
            await self.app({**scope, "method": "GET", GONE: client.gone}, client.receive, guarded)
        except Exception as error:  # the page reports it
            sys.stderr.write(f"stepscope: {scope['path']!r} could not be created: {type(error).__name__}\n")
        finally:
            client.gone.set()
            watch.cancel()


class _Client:
    """The client of a request; anything that it sends after the request is ignored."""

    def __init__(self, receive: Receive) -> None:
        self.gone = threading.Event()
        """Event for the threads that build the answer."""
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
