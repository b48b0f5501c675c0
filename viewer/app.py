"""The local dashboard: every page, its JSON twin, static files, and what keeps them safe to open."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from viewer import assets, compile_run_pages, pages, rendering, value_pages
from viewer.addresses import NotThere, Page
from viewer.addresses import Request as Asked
from viewer.byte_range import byte_range
from viewer.errors import StepscopeError
from viewer.follow import Current, Reading
from viewer.queries import export

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from viewer.store.open import Trace

NO_CACHE = (b"cache-control", b"no-cache")
JSON_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class Dashboard:
    """The routes of a trace, of the reading of it that is shown now."""

    def __init__(self, current: Current) -> None:
        self.current = current
        self.import_map = rendering.to_json(assets.served_import_map())

    def render(
        self, reading: Reading, template: str, section: str, context: dict[str, Any], status: int = 200
    ) -> Response:
        from markupsafe import Markup

        html = (
            rendering.environment()
            .get_template(template)
            .render(
                **context,
                context=context,
                frame=reading.frame,
                notices=reading.trace.notices,
                section=section,
                import_map=Markup(self.import_map),
            )
        )
        return Response(html, status, media_type="text/html")

    def page(self, page: Page) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            with self.current.use() as reading:
                built = page.build(reading.trace, asked(request))
                return self.render(reading, page.template, page.section, pages.context_of(built))

        return endpoint

    def twin(self, build: Callable[[Trace, Asked], Any], request: Request) -> Response:
        with self.current.use() as reading:
            return json_response(build(reading.trace, asked(request)))

    def raw(self, request: Request) -> Response:
        """The payload of a record as the program wrote it, or a range of its bytes."""
        record = asked(request).id("record")
        with self.current.use() as reading:
            payload = reading.trace.whole_payload(record)
            if not payload and export.payload_size(reading.trace, record)[0] is None:
                raise NotThere(f"This trace holds no payload of a record {record}.")
        headers = {"Accept-Ranges": "bytes", "Content-Disposition": f'attachment; filename="record_{record}.txt"'}
        # Without an ETag there is nothing that If-Range could name: then all of it is the answer.
        wanted = None if "if-range" in request.headers else request.headers.get("range")
        try:
            part = byte_range(wanted, len(payload)) if wanted else None
        except ValueError:
            headers["Content-Range"] = f"bytes */{len(payload)}"
            return Response(b"", 416, headers, media_type="text/plain")
        if part is not None:
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(payload)}"
            payload = payload[part]
        headers["Content-Length"] = str(len(payload))
        body = b"" if request.method == "HEAD" else payload
        return Response(body, 200 if part is None else 206, headers, media_type="text/plain")

    def table(self, request: Request) -> Response:
        """A table of the index as a file."""
        table, form = request.path_params["table"], request.path_params["form"]
        with self.current.use() as reading:
            if table not in export.tables(reading.trace) or form not in ("csv", "parquet"):
                raise NotThere("This trace holds no such table; /tables lists them.")
            file, _ = export.table_file(reading.trace, table, "csv" if form == "csv" else "parquet")
        kind = "text/csv" if form == "csv" else "application/vnd.apache.parquet"
        headers = {"Content-Disposition": f'attachment; filename="{table}.{form}"'}
        return StreamingResponse(read_and_close(file), media_type=kind, headers=headers)

    def metrics(self, request: Request) -> Response:
        """The table of compilation metrics as the address has it, all of its rows."""
        with self.current.use() as reading:
            text = compile_run_pages.metrics_csv(reading.trace, asked(request))
        return Response(
            text, media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="metrics.csv"'}
        )

    def launch(self, request: Request) -> Response:
        """A launch by its id alone: to its place in the timeline of its step."""
        with self.current.use() as reading:
            return to_launch(reading.trace, asked(request).id("launch"))

    def cell(self, request: Request) -> Response:
        """A cell of the heat map: to its worst launch."""
        with self.current.use() as reading:
            return to_launch(reading.trace, value_pages.worst_launch(reading.trace, asked(request)))

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
        with self.current.use() as reading:
            is_data = path.endswith((".json", "/raw")) or path.startswith("/static/")
            if is_data or (status == 500 and not reading.has_frame):
                return json_response({"ok": False, "error": message}, status)
            return self.render(reading, "error.html", "", {"status": status, "message": message}, status)

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
        routes += [Route("/values/launch", self.cell), Route("/tables/{table}/{form}", self.table)]
        routes += [Route("/metrics.csv", self.metrics)]
        routes += [Route(page.path, self.page(page)) for page in pages.PAGES]
        return routes


def asked(request: Request) -> Asked:
    return Asked(request.path_params, request.query_params)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value, option=JSON_OPTIONS), status, media_type="application/json")


def to_launch(trace: Trace, number: int) -> Response:
    launch = pages.launch_page_of(trace, number).launch
    return RedirectResponse(f"/steps/{launch.step}?log={launch.log}&launch={launch.launch}", 303)


def read_and_close(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(1 << 20):
            yield piece


def static(request: Request) -> Response:
    """A script or a style. Under the address that names its content a browser may keep it; under any other it asks
    again, and is told when it has it already."""
    path = assets.static_files().get(request.path_params["path"])
    if path is None:
        raise NotThere("There is no such file.")
    content = path.read_bytes()
    version = assets.version(content)
    kept = request.query_params.get("v") == version
    headers = {
        "Content-Type": assets.CONTENT_TYPES[path.suffix],
        "Cache-Control": "public, max-age=31536000, immutable" if kept else "no-cache",
        "ETag": f'"{version}"',
    }
    if f'"{version}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


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
                own = message.get("headers", [])
                kept = any(name == b"cache-control" for name, _ in own)
                message["headers"] = [*own, *self.headers, *(() if kept else (NO_CACHE,))]
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if is_local(host):
            await self.app(scope, receive, guarded)
        else:
            refusal = {"ok": False, "error": "Open this dashboard by localhost or an IP address."}
            await json_response(refusal, 400)(scope, receive, guarded)


def create_app(trace: Trace | Current) -> Guard:
    """The pages of a trace, and their JSON twins."""
    dashboard = Dashboard(trace if isinstance(trace, Current) else Current(trace))
    app = Starlette(
        routes=dashboard.routes(),
        exception_handlers=dashboard.exception_handlers(),
    )
    return Guard(Twins(dashboard, app), security_headers(dashboard.import_map))
