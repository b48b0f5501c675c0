"""Reads the addresses of the dashboard, and names the file of each page and of each answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from urllib.parse import parse_qsl, unquote, urlsplit

from stepscope.viewer.web import registry
from stepscope.viewer.web.addresses import Page, Redirect, Route, Twin
from stepscope.viewer.web.app import match

NEED_A_SERVER = {"/search", "/sql", "/tables", "/compare"}
"""Pages that answer questions."""
STATE = {
    "/steps": {"first_step", "last_step"},
    "/steps/{step}": {"launch"},
    "/steps/{step}/timeline.json": {"width"},
    "/graphs/{graph}": {"site"},
    "/graphs/{graph}/memory": {"from", "to", "hide", "only"},
    "/memory": {"first_step", "last_step"},
    "/curves": {"statistic"},
    "/compile-time": {"start_ns", "end_ns"},
    "/compile/{compile_id}/provenance": {"line"},
}
"""Parameters of routes that choose no other page, because scripts read them."""
ANSWERS = {"/steps/{step}/timeline.json", "/steps/{step}/area.json", "/launches/{launch}.json"}
"""Twins that scripts ask for."""
MOST_CHARACTERS = 80
"""Longest name of a file, without its ending."""


@dataclass(frozen=True)
class Address:
    """The address of a page, without the parameters that scripts read."""

    route: Page | Twin | Redirect
    path: str
    query: Mapping[str, str]
    state: Mapping[str, str]
    """The parameters that scripts read, and those of no route."""

    @property
    def key(self) -> str:
        """Return the text that stands for the page, as static/js/exports/folder.js makes it."""
        query = "&".join(f"{name}={value}" for name, value in sorted(self.query.items()))
        return f"{self.path}?{query}" if query else self.path

    @property
    def file(self) -> str:
        """Return the name of the file, which every file system takes and which no other page has."""
        first, *others = self.path.strip("/").removesuffix(".json").split("/")
        values = sorted(self.query.items())
        pieces = [first or "index", *others, *(f"{name}-{value}" for name, value in values)]
        stem = ".".join(re.sub(r"[^a-z0-9_-]", "_", piece.lower()) for piece in pieces)
        exact = all(re.fullmatch(r"[a-z0-9_]+", text) for text in (*others, *(value for _, value in values)))
        if not exact or len(stem) > MOST_CHARACTERS:
            stem = f"{stem[:MOST_CHARACTERS]}.{sha256(self.key.encode('utf-8', 'replace')).hexdigest()[:12]}"
        return f"data/{stem}.json" if isinstance(self.route, Twin) else f"{stem}.html"


def address_of(link: str) -> Address | None:
    """Return the address that a link of a page leads to, or None for what no folder holds."""
    if not link.startswith("/") or link.startswith("//"):
        return None
    parts = urlsplit(link)
    path = unquote(parts.path)
    found = match(path, _routes())
    if found is None:
        return None
    route, _ = found
    if not isinstance(route, (Page, Twin, Redirect)) or route.path in NEED_A_SERVER:
        return None
    asked = parse_qsl(parts.query)
    known = {name for name, _ in asked} if isinstance(route, Redirect) else query_names(route)
    query = {name: value for name, value in asked if name in known}
    return Address(route, path, query, {name: value for name, value in asked if name not in known})


def query_names(route: Page | Twin) -> set[str]:
    """Return the names of the parameters that choose the page of a route."""
    in_path = set(re.findall(r"\{(\w+)\}", route.path))
    return {one.name for one in route.parameters} - in_path - STATE.get(route.path, set())


@cache
def route_patterns() -> list[tuple[str, list[str]]]:
    """Return for each route of a folder the pattern of its paths and the names that choose its page, for scripts."""
    return [
        (re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path)), sorted(query_names(route)))
        for route in _routes()
        if isinstance(route, (Page, Twin)) and route.path not in NEED_A_SERVER
    ]


@cache
def _routes() -> list[Route]:
    twins: list[Route] = [twin for twin in registry.twins() if twin.path in ANSWERS]
    return [*twins, *(route for route in registry.routes() if not isinstance(route, Twin))]
