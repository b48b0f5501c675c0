"""The pages besides the first, as a Starlette application; the first one does not wait for what is imported here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from stepscope.viewer.compiles import summary_page
from stepscope.viewer.errors import StepscopeError, reason_of
from stepscope.viewer.exports.queries import tables as exports_tables
from stepscope.viewer.values import page as values_page
from stepscope.viewer.web import pages, rendering
from stepscope.viewer.web.addresses import GONE, Elsewhere, NotThere, Page
from stepscope.viewer.web.addresses import Request as Asked
from stepscope.viewer.web.byte_range import byte_range
from stepscope.viewer.web.parts import failures

if TYPE_CHECKING:
    from starlette.requests import Request

    from stepscope.viewer.store.trace import Trace
    from stepscope.viewer.web.follow import Current, Reading

JSON_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def create_pages(current: Current, import_map: str) -> Starlette:
    """Every page of what is shown, tables and payloads as files."""
    dashboard = Dashboard(current, import_map)
    return Starlette(routes=dashboard.routes(), exception_handlers=dashboard.exception_handlers())


class Dashboard:
    """The routes of a trace, of the reading of it that is shown now."""

    def __init__(self, current: Current, import_map: str) -> None:
        self.current = current
        self.import_map = import_map

    def render(
        self, reading: Reading, template: str, section: str, context: dict[str, Any], status: int = 200
    ) -> Response:
        html = rendering.page(reading, template, section, context, self.import_map)
        return Response(html, status, media_type="text/html")

    def page(self, page: Page) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            with self.current.use() as reading:
                with failures() as failed:
                    built = page.build(reading.trace, asked(request))
                context = {**rendering.context_of(built), "not_shown": failed}
                return self.render(reading, page.template, page.section, context)

        return endpoint

    def twin(self, build: Callable[[Trace, Asked], Any], request: Request) -> Response:
        with self.current.use() as reading:
            with failures() as failed:
                answer = build(reading.trace, asked(request))
            return json_response(answer, failed=failed)

    def raw(self, request: Request) -> Response:
        """The payload of a record as the program wrote it, or a range of its bytes."""
        record = asked(request).id("record")
        with self.current.use() as reading:
            payload = reading.trace.whole_payload(record)
            if not payload and exports_tables.payload_size(reading.trace, record)[0] is None:
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
        return Response(payload, 200 if part is None else 206, headers, media_type="text/plain")

    def table(self, request: Request) -> Response:
        """A table of the index as a file."""
        table, form = request.path_params["table"], request.path_params["form"]
        with self.current.use() as reading:
            if table not in exports_tables.tables(reading.trace) or form not in ("csv", "parquet"):
                raise NotThere("This trace holds no such table; /tables lists them.")
            file, _ = exports_tables.table_file(reading.trace, table, "csv" if form == "csv" else "parquet")
        kind = "text/csv" if form == "csv" else "application/vnd.apache.parquet"
        headers = {"Content-Disposition": f'attachment; filename="{table}.{form}"'}
        return StreamingResponse(read_and_close(file), media_type=kind, headers=headers)

    def metrics(self, request: Request) -> Response:
        """The table of compilation metrics as the address has it, all of its rows."""
        with self.current.use() as reading:
            text = summary_page.metrics_csv(reading.trace, asked(request))
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
            return to_launch(reading.trace, values_page.worst_launch(reading.trace, asked(request)))

    def not_there(self, request: Request, error: Exception) -> Response:
        message = str(error) if isinstance(error, NotThere) else "There is no such page."
        return self.error(request, 404, message)

    def unreadable(self, request: Request, error: Exception) -> Response:
        return self.error(request, 422, str(error))

    def failed(self, request: Request, error: Exception) -> Response:
        return self.error(request, 500, f"This page could not be made ({reason_of(error)}).")

    def error(self, request: Request, status: int, message: str) -> Response:
        path = request.url.path
        # Without a frame even the error page cannot be drawn: then the overview itself fails.
        with self.current.use() as reading:
            is_data = path.endswith((".json", "/raw")) or path.startswith("/static/")
            if is_data or (status == 500 and not reading.has_frame):
                return json_response({"ok": False, "error": message}, status)
            return self.render(reading, "core/error.html", "", {"status": status, "message": message}, status)

    def elsewhere(self, request: Request, error: Exception) -> Response:
        if request.url.path.endswith(".json") or not isinstance(error, Elsewhere):
            return self.error(request, 404, "This log holds no record of it.")
        return RedirectResponse(error.address, 303)

    def exception_handlers(self) -> dict[Any, Any]:
        return {
            NotThere: self.not_there,
            Elsewhere: self.elsewhere,
            HTTPException: self.not_there,
            StepscopeError: self.unreadable,
            Exception: self.failed,
        }

    def routes(self) -> list[Route]:
        routes = [Route("/records/{record}/raw", self.raw), Route("/launches/{launch}", self.launch)]
        routes += [Route("/values/launch", self.cell), Route("/tables/{table}/{form}", self.table)]
        routes += [Route("/metrics.csv", self.metrics)]
        routes += [Route(page.path, self.page(page)) for page in pages.PAGES]
        return routes


def asked(request: Request) -> Asked:
    return Asked(request.path_params, request.query_params, request.scope[GONE])


def json_response(value: Any, status: int = 200, failed: Sequence[str] = ()) -> Response:
    """`failed`: sentences about what is missing; the key is there only then."""
    body = orjson.dumps(value, option=JSON_OPTIONS)
    if failed and body.endswith(b"}"):
        body = b'%s%s"not_shown":%s}' % (body[:-1], b"," if len(body) > 2 else b"", orjson.dumps([*failed]))
    return Response(body, status, media_type="application/json")


def to_launch(trace: Trace, number: int) -> Response:
    launch = pages.launch_page_of(trace, number).launch
    return RedirectResponse(f"/steps/{launch.step}?log={launch.log}&launch={launch.launch}", 303)


def read_and_close(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(1 << 20):
            yield piece
