"""Addresses: which page stands at one, what it says, and names of kernels and buffers as one part of a path."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace


GONE = "stepscope.gone"
"""Under which a request of the server says that its client has gone."""


class NotThere(Exception):
    """The address names something that this trace does not hold; the message is for the reader."""


class Elsewhere(Exception):
    """What the trace holds of this stands at another address."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


@dataclass(frozen=True)
class Request:
    """What an address says: parts of its path and its query."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for the answer any more."""

    def number(self, name: str, default: int | None = None) -> int | None:
        text = self.path.get(name, self.query.get(name, ""))
        if not text:
            return default
        # More digits than any id has; int() refuses very long ones with a ValueError of its own.
        if not text.lstrip("-").isdecimal() or len(text) > 20 or "-" in text[1:]:
            raise NotThere(f"“{text[:40]}” is not a number: {name} must be one.")
        return int(text)

    def id(self, name: str) -> int:
        number = self.number(name)
        if number is None or not 0 <= number < 1 << 62:
            raise NotThere(f"This address needs a {name} number.")
        return number

    def optional_id(self, name: str) -> int | None:
        return None if self.number(name) is None else self.id(name)

    def text(self, name: str) -> str | None:
        return self.query.get(name) or None

    def name(self, name: str) -> str:
        return unslug(self.path[name])


@dataclass(frozen=True)
class Page:
    """An address that has an HTML page and, with `.json` behind it, a twin."""

    path: str
    template: str
    section: str
    context: type
    build: Callable[[Trace, Request], Any]
    query: tuple[str, ...] = ()
    """What may stand behind the ``?``."""


@dataclass(frozen=True)
class Twin:
    """An address that answers in JSON."""

    path: str
    context: type
    build: Callable[[Trace, Request], Any]
    query: tuple[str, ...] = ()


def slug(name: str) -> str:
    """`name` as one part of a path. Percent signs would be decoded on the way: a slash would divide the path,
    dots alone would be taken for folders, `.json` for the twin. So `~` stands for them; slugOf in
    static/js/core/format.js does the same."""
    text = quote(name, safe="", errors="surrogatepass").replace("~", "~7E").replace("%", "~")
    if name.endswith(".json") or not name.strip("."):
        text = text.replace(".", "~2E")
    return text or "~"


def unslug(text: str) -> str:
    return "" if text == "~" else unquote(text.replace("~", "%"), errors="surrogatepass")
