"""Shows how far the index of a trace is, until the dashboard can answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.open_in_background import Building
from stepscope.viewer.text.formats import to_json
from stepscope.viewer.text.source_links import EDITOR
from stepscope.viewer.web import answers, assets, render
from stepscope.viewer.web.app import STATIC, create_app
from stepscope.viewer.web.guard import RequestGuard, security_headers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from stepscope.viewer.store.trace import Trace
    from stepscope.viewer.web.answers import Answer

PROGRESS = "/building.json"
"""What the page asks for again and again; its status is 404 when the index is there."""
_LATER = ((b"retry-after", b"1"), (b"cache-control", b"no-store"))


class BuildingApp:
    """The application for a trace whose index is being built; every address shows that until it is there."""

    def __init__(self, building: Building, source_link: str = EDITOR) -> None:
        self.error: StepscopeError | None = None
        """Why the trace cannot be opened."""
        self._building, self._source_link = building, source_link
        self._trace: Trace | None = None
        headers = security_headers(to_json(assets.served_import_map()))
        self._waiting: ASGIApp = RequestGuard(self._answer, headers)
        self._dashboard: ASGIApp | None = None
        self._thread: threading.Thread | None = None

    def start(self, stop: Callable[[], None]) -> None:
        """Wait for the index in the background; `stop` is called if the trace cannot be opened."""
        self._thread = threading.Thread(target=self._open, args=(stop,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End what is being built, and close the trace."""
        self._building.stop()
        if self._thread is not None:
            self._thread.join()
        if self._trace is not None:
            self._trace.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._dashboard or self._waiting)(scope, receive, send)

    def _open(self, stop: Callable[[], None]) -> None:
        try:
            self._trace = self._building.open()
        except StepscopeError as error:
            self.error = error
            stop()
            return
        if self._trace is not None:
            self._dashboard = create_app(self._trace, self._source_link)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith(STATIC):
            asked = scope.get("query_string", b"").decode("latin-1").removeprefix("v=")
            found = answers.asset(path.removeprefix(STATIC), asked)
            await (found or answers.data({"ok": False, "error": "There is no such file."}, 404)).send(send)
            return
        await self._progress(path).send(send)

    def _progress(self, path: str) -> Answer:
        far = self._building.how_far
        share = min(far.done / far.total, 1.0) if far.total else None
        if path.endswith((".json", "/raw")):
            building = {"what": far.what, "done": far.done, "total": far.total, "share": share}
            text = f"The index of this trace is being built: {far.what}."
            status = 200 if path == PROGRESS else 503
            answer = answers.data({"ok": False, "error": text, "building": building}, status)
            return replace(answer, headers=_LATER)
        template = render.environment().get_template("core/building.html")
        page = template.render(what=far.what, share=share)
        return replace(answers.html(page, 503), headers=_LATER)
