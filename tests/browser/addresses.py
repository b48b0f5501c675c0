"""Finds the pages of a dashboard as a reader does, by following its links."""

from __future__ import annotations

import re
from collections import deque
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

from stepscope.viewer.web import registry
from stepscope.viewer.web.app import match

MOST_KINDS = 150
"""Kinds of pages that are read at most."""
ONLY_ORDER = {"attempt", "columns", "direction", "graph", "log", "offset", "order", "record", "sort", "status"}
"""Parameters that choose rows of a page and their order."""
LINK = re.compile(r"""<a\b[^>]*?\bhref="([^"#]*)""")


Kind = tuple[str, ...]
"""The route that serves a page, and the names of its parameters but for those that choose rows."""


def kind_of(address: str) -> Kind:
    """Return the kind of page at an address; it is empty if no route serves it."""
    parts = urlsplit(address)
    found = match(parts.path, registry.pages())
    return (found[0].path, *sorted({name for name, _ in parse_qsl(parts.query)} - ONLY_ORDER)) if found else ()


def every_page(root: str) -> list[str]:
    """Return one address of each kind of page of the dashboard at `root` that its start page leads to."""
    kinds: dict[Kind, str] = {}
    waiting, seen = deque(["/"]), {"/"}
    while waiting and len(kinds) < MOST_KINDS:
        address = waiting.popleft()
        kind = kind_of(address)
        if not kind or kind in kinds:
            continue
        kinds[kind] = address
        with urlopen(root + address) as answer:
            text = answer.read().decode()
        new = [link.replace("&amp;", "&") for link in LINK.findall(text) if link.startswith("/")]
        waiting.extend(link for link in dict.fromkeys(new) if link not in seen)
        seen.update(new)
    return [*kinds.values()]
