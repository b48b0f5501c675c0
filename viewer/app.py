"""The local dashboard: every page, its JSON twin, static files, and what keeps them safe to open."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from viewer import assets, contexts, pages, rendering, value_pages
from viewer.addresses import NotThere, Page
from viewer.addresses import Request as Asked
from viewer.errors import StepscopeError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from viewer.store.open import Trace

JSON_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class Dashboard:
    """The routes of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.import_map = rendering.to_json(assets.served_import_map())
        self._frame: contexts.Frame | None = None
        self._lock = threading.Lock()

    @property
    def frame(self) -> contexts.Frame:
        if self._frame is None:
            from viewer.queries.overview import overview

            self._frame = pages.frame(overview(self.trace))
        return self._frame

    def render(self, template: str, section: str, context: dict[str, Any], status: int = 200) -> Response:
        from markupsafe import Markup

        html = (
            rendering.environment()
            .get_template(template)
            .render(**context, context=context, frame=self.frame, section=section, import_map=Markup(self.import_map))
        )
        return Response(html, status, media_type="text/html")

    def page(self, page: Page) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            with self._lock:
                built = page.build(self.trace, asked(request))
                return self.render(page.template, page.section, pages.context_of(built))

        return endpoint

    def twin(self, build: Callable[[Trace, Asked], Any], request: Request) -> Response:
        with self._lock:
            built = build(self.trace, asked(request))
        return json_response(built)

    def raw(self, request: Request) -> Response:
        record = asked(request).id("record")
        with self._lock:
            payload = self.trace.payload(record)
        name = f'attachment; filename="record_{record}.txt"'
        return Response(payload, media_type="text/plain", headers={"Content-Disposition": name})

    def launch(self, request: Request) -> Response:
        """A launch by its id alone: to its place in the timeline of its step."""
        with self._lock:
            return self.to_launch(asked(request).id("launch"))

    def cell(self, request: Request) -> Response:
        """A cell of the heat map: to its worst launch."""
        with self._lock:
            return self.to_launch(value_pages.worst_launch(self.trace, asked(request)))

    def to_launch(self, number: int) -> Response:
        launch = pages.launch_page_of(self.trace, number).launch
        return RedirectResponse(f"/steps/{launch.step}?log={launch.log}&launch={launch.launch}", 303)

    def not_there(self, request: Request, error: Exception) -> Response:
        message = str(error) if isinstance(error, NotThere) else "There is no such page."
        return self.error(request, 404, message)

    def unreadable(self, request: Request, error: Exception) -> Response:
        return self.error(request, 422, str(error))

    def failed(self, request: Request, error: Exception) -> Response:
        return self.error(request, 500, f"This page could not be made ({type(error).__name__}).")

    def error(self, request: Request, status: int, message: str) -> Response:
        path = request.url.path
        # Without a frame even the error page cannot be drawn: then the overview itself fails.
        if path.endswith((".json", "/raw")) or path.startswith("/static/") or (status == 500 and not self._frame):
            return json_response({"ok": False, "error": message}, status)
        with self._lock:
            return self.render("error.html", "", {"status": status, "message": message}, status)

    def exception_handlers(self) -> dict[Any, Any]:
        return {
            NotThere: self.not_there,
            HTTPException: self.not_there,
            StepscopeError: self.unreadable,
            Exception: self.failed,
        }

    def routes(self) -> list[Route]:
        routes = [Route("/static/{path:path}", static)]
        routes += [Route("/records/{record}/raw", self.raw), Route("/launches/{launch}", self.launch)]
        routes += [Route("/values/launch", self.cell)]
        routes += [Route(page.path, self.page(page)) for page in pages.PAGES]
        return routes


def asked(request: Request) -> Asked:
    return Asked(request.path_params, request.query_params)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value, option=JSON_OPTIONS), status, media_type="application/json")


def static(request: Request) -> Response:
    path = assets.static_files().get(request.path_params["path"])
    if path is None:
        raise NotThere("There is no such file.")
    return Response(path.read_bytes(), headers={"Content-Type": assets.CONTENT_TYPES[path.suffix]})


def security_headers(import_map: str) -> list[tuple[bytes, bytes]]:
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
        (b"cache-control", b"no-cache"),
    ]


def is_local(host: str) -> bool:
    """A name that a web page elsewhere cannot have pointed at this machine. The port is free: `ssh -L` maps it."""
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Twins:
    """Sends `.json` addresses to the API, which is made soon after the first page, or by the first of them."""

    def __init__(self, dashboard: Dashboard, pages_app: ASGIApp) -> None:
        self._dashboard, self._pages = dashboard, pages_app
        self._lock = threading.Lock()
        self._api: ASGIApp | None = None
        self._warming: threading.Thread | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.endswith(".json") and not path.startswith("/static/"):
            await self.api()(scope, receive, send)
            return
        await self._pages(scope, receive, send)
        if self._warming is None:
            self._warming = threading.Thread(target=self.api, daemon=True)
            self._warming.start()

    def api(self) -> ASGIApp:
        from viewer.api import create_api

        with self._lock:
            if self._api is None:
                self._api = create_api(self._dashboard)
            return self._api


class Guard:
    """Refuses foreign Host headers, puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, headers: list[tuple[bytes, bytes]]) -> None:
        self.app = app
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self.headers]
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if is_local(host):
            await self.app(scope, receive, guarded)
        else:
            refusal = {"ok": False, "error": "Open this dashboard by localhost or an IP address."}
            await json_response(refusal, 400)(scope, receive, guarded)


def create_app(trace: Trace) -> Guard:
    """The pages of `trace`, and their JSON twins."""
    dashboard = Dashboard(trace)
    app = Starlette(
        routes=dashboard.routes(),
        exception_handlers=dashboard.exception_handlers(),
    )
    return Guard(Twins(dashboard, app), security_headers(dashboard.import_map))
