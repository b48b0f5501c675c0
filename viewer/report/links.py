"""Turns links of a report that lead outside of the file into plain text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from html import unescape
from urllib.parse import parse_qsl, urlencode

_LINK = re.compile(r'(<a\b[^<>]*?) href="([^"]*)"')
_EXTERNAL = re.compile(r"[a-z][a-z-]*://")
"""A link to a line of source in an editor or a repository, which the user asked for."""
_ID = re.compile(r'<[^<>]* id="([^"]*)"')
_ROUTE = re.compile(r'data-route="([^"]*)"')
_CURVE = ("site", "argument", "item", "part", "moment")
_MAP = ("log", "of", "statistic")
_DIFFERENCE = ("aspect", "left", "right")


def route_of(address: str) -> str:
    """Return a page's address without parameters that only change its state, like `pageOf` in js/report/data.js."""
    path, _, query = address.partition("?")
    asked = dict(parse_qsl(query))
    for of, names in (("/curves", _CURVE), ("/magnitudes", _MAP), ("/ranks/difference", _DIFFERENCE)):
        if path == of:
            return f"{path}?{urlencode([(name, asked[name]) for name in names if name in asked])}"
    if path == "/values" or re.match(r"/(?:steps|compile)/.", path):
        return f"{path}?log={asked.get('log', 0)}"
    return path or "/"


def without_dead_links(html: str, code_lines: Mapping[int, int]) -> str:
    """Replace each link without a target in `html` by its text.

    `code_lines` is the number of code lines of each graph, which a script shows."""
    head, body_tag, body = html.partition("<body")
    routes = {route_of(unescape(route)) for route in _ROUTE.findall(body)}
    ids = Counter(unescape(found) for found in _ID.findall(body))

    def living(href: str) -> str | None:
        if _EXTERNAL.match(href):
            return href
        if href.startswith("#") and not href.startswith("#/"):
            return href if ids[href[1:]] == 1 else None
        address, _, place = href.removeprefix("#").partition("#")
        route = route_of(address)
        if not href.startswith("#") or route not in routes:
            return None
        is_there = not place or ids[f"{route}#{place}"] or ids[place] or _is_code(route, place, code_lines)
        return href if is_there else f"#{address}"

    def link(found: re.Match[str]) -> str:
        href = unescape(found[2])
        kept = living(href)
        if kept is None:
            return found[1]
        return found[0] if kept == href else found[0].replace(f'#{href.rpartition("#")[2]}"', '"')

    return head + body_tag + _LINK.sub(link, body)


def _is_code(route: str, place: str, code_lines: Mapping[int, int]) -> bool:
    graph, line = re.fullmatch(r"/graphs/(\d+)", route), re.fullmatch(r"L(\d+)", place)
    return bool(graph and line and 1 <= int(line[1]) <= code_lines.get(int(graph[1]), 0))
