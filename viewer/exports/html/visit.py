"""Visits the pages of a trace from link to link, the most useful ones first."""

from __future__ import annotations

import heapq
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import unescape

import orjson

from stepscope.viewer.exports.html.addresses import Address, address_of
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web import registry
from stepscope.viewer.web.addresses import Redirect, Twin
from stepscope.viewer.web.app import App, Asked
from stepscope.viewer.web.follow import Current

LINK = re.compile(r'<a\b[^<>]*? href="([^"]*)"')
STEP, LAUNCH = "/steps/{step}", "/launches/{launch}.json"
MAIN = {
    STEP, "/graphs/{graph}", "/graphs/{graph}/memory", "/graphs/{graph}/buffers", "/kernels/{kernel}",
    "/compile/{compile_id}",
}  # fmt: skip
"""Pages of one step, graph, kernel or compile, which come before all that they link to."""
LAST = {"/records/{record}", "/sites"}
"""Pages that come after all others, like those that show other rows of a page or another order."""
OTHER_ROWS = {"offset", "stacks", "snode", "text"}
OTHER_ORDER = {"sort", "direction", "order", "columns"}
"""Parameters that only change the order of tables or their columns. In a folder, the browser sorts."""
WIDTH = 20_000
"""Width of the timelines: a thread may have twice as many launches before short ones are joined."""


@dataclass
class Visited:
    """The contents of a folder, by the keys of their addresses."""

    pages: dict[str, bytes] = field(default_factory=dict)
    """The HTML of pages as the dashboard serves them, packed."""
    answers: dict[str, bytes] = field(default_factory=dict)
    """Answers in JSON for the scripts of these pages."""
    files: dict[str, str] = field(default_factory=dict)
    """The name of the file of each page and answer."""
    moved: dict[str, str] = field(default_factory=dict)
    """The links that addresses redirect to."""
    count: int = 0
    """Number of pages and launches."""
    left_out: int = 0
    """Number of pages and launches that were found but not visited."""

    def html(self, key: str) -> str:
        return zlib.decompress(self.pages[key]).decode()

    def target(self, link: str) -> Address | None:
        """Return the address that a link leads to, as far as it is known where it is redirected to."""
        address = address_of(link)
        return address_of(self.moved[address.key]) if address and address.key in self.moved else address


class Visit:
    """One visit of the pages of a trace."""

    def __init__(self, trace: Trace, import_map: str, source_link: str) -> None:
        self._app = App(Current(trace), source_link)
        self._app.import_map = import_map
        self._found = Visited()
        self._findings = [*_finding_links(trace)]
        self._named: set[str] = set()
        self._seen: set[str] = set()
        self._waiting: list[tuple[int, int, Address]] = []

    def run(self, most: int, say: Callable[[str], None]) -> Visited:
        """Visit at most `most` pages and launches, and return them."""
        for section in registry.navigation():
            self._add(section.path)
        for link in self._findings:
            self._add(link, is_named=True)
        while self._waiting and self._found.count < most:
            say(f"page {self._found.count + 1:,} of at most {most:,}")
            self._found.count += self._take(heapq.heappop(self._waiting)[2])
        self._found.left_out = len(self._waiting)
        return self._found

    def _add(self, link: str, *, is_named: bool = False) -> None:
        """Add the page that a link leads to; `is_named` if a finding has the link."""
        address = address_of(link)
        if address is not None and isinstance(address.route, Redirect):
            self._take(address)
            address = self._found.target(link)
        if address is None or isinstance(address.route, Redirect) or address.key in self._seen:
            return
        if not OTHER_ORDER.isdisjoint(address.query):
            return
        self._seen.add(address.key)
        rank = 1 if is_named else _rank(address)
        heapq.heappush(self._waiting, (rank, len(self._seen), address))
        if is_named and "launch" in address.state:
            self._add(f"/launches/{address.state['launch']}.json", is_named=True)

    def _take(self, address: Address) -> bool:
        """Visit an address, and return whether the folder has what is there."""
        if isinstance(address.route, Twin):
            return self._take_answer(address.key) is not None
        body = self._body(address)
        if body is None:
            return False
        self._found.files[address.key] = address.file
        self._found.pages[address.key] = zlib.compress(body, 1)
        for href in LINK.findall(body.decode()):
            self._add(unescape(href).partition("#")[0])
        if address.route.path == STEP:
            self._take_answers(address)
        return True

    def _body(self, address: Address, **more: str) -> bytes | None:
        """Ask the dashboard; return None if there is no answer, and remember where it redirects to."""
        answer = self._app.answer(Asked(address.path, {**address.query, **more}, {}, threading.Event()))
        where = dict(answer.headers).get(b"location")
        if where is not None:
            self._found.moved[address.key] = where.decode()
            if not isinstance(address.route, Redirect):
                self._add(where.decode())
        return answer.body if answer.status == 200 and isinstance(answer.body, bytes) else None

    def _take_answers(self, step: Address) -> None:
        """Take the answers that the scripts of a step ask for, and add its launches."""
        log = step.query.get("log", "0")
        self._take_answer(f"{step.path}/area.json?log={log}")
        timeline = self._take_answer(f"{step.path}/timeline.json?log={log}", width=str(WIDTH))
        for launch in orjson.loads(timeline)["launches"]["launch"] if timeline else []:
            self._add(f"/launches/{launch}.json")

    def _take_answer(self, link: str, **more: str) -> bytes | None:
        address = address_of(link)
        if address is None:
            return None
        body = self._body(address, **more)
        if body is not None:
            self._found.answers[address.key], self._found.files[address.key] = body, address.file
        return body


def _rank(address: Address) -> int:
    """Return the place of a page among others; the lowest come first."""
    path, names = address.route.path, {*address.query}
    if path == "/records" and names:
        return 7
    if path in LAST or names & OTHER_ROWS:
        return 6
    if path == LAUNCH:
        return 3
    if path in MAIN and names <= {"log"}:
        return 2
    return min(len(names), 2) + 3 if names or "{" in path else 0


def _finding_links(trace: Trace) -> Iterator[str]:
    for finding in overview(trace).findings:
        yield from (finding.page, *(link.page for link in finding.links))
