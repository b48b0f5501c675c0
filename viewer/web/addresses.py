"""The kinds of routes, the contents of a request, and the encoding of names as path segments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, unquote, urlencode

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace
    from stepscope.viewer.web.parameters import AddressParameter


class NotThere(Exception):
    """Raised if the address names something that this trace lacks; the message is shown to the user."""


class MovedTo(Exception):
    """Raised if the trace shows this at another address."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


@dataclass(frozen=True)
class Request:
    """The parts of a request's path and its query."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when the client has disconnected."""
    byte_range: str | None = None
    """Requested bytes, as in HTTP's `Range` header."""

    def number(self, name: str, default: int | None = None) -> int | None:
        text = self.path.get(name, self.query.get(name, ""))
        if not text:
            return default
        # No id is longer than this, and int() raises ValueError for very long numbers.
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
class Twin:
    """An address that answers in JSON."""

    path: str
    context: type
    build: Callable[[Trace, Request], Any]
    parameters: tuple[AddressParameter, ...] = ()
    is_lasting: bool = True
    """Whether the same address always has the same answer while the trace is open; that of a search may be cut off."""


@dataclass(frozen=True)
class Page:
    """An address that has an HTML page and a twin."""

    path: str
    template: str
    section: str
    context: type
    build: Callable[[Trace, Request], Any]
    parameters: tuple[AddressParameter, ...] = ()
    """Parameters in the path and in the query."""
    is_lasting: bool = True

    @property
    def twin(self) -> Twin:
        """Return the twin, which answers with the page's context as JSON."""
        path = "/index.json" if self.path == "/" else f"{self.path}.json"
        return Twin(path, self.context, self.build, self.parameters, self.is_lasting)


@dataclass(frozen=True)
class File:
    """An answer that a browser saves as a file."""

    content: bytes | IO[bytes]
    content_type: str
    name: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Download:
    """An address that answers with a file."""

    path: str
    build: Callable[[Trace, Request], File]


@dataclass(frozen=True)
class Redirect:
    """An address that redirects to the address that `build` returns."""

    path: str
    build: Callable[[Trace, Request], str]


Route: TypeAlias = Page | Twin | Download | Redirect


def slug(name: str) -> str:
    """Encode `name` as one path segment, like slugOf in static/js/core/format.js.

    It uses `~` instead of percent signs, which are decoded on the way so that a slash would split the path. Names of
    only dots and names that end in `.json` are encoded too, as they mean folders and twins."""
    text = quote(name, safe="", errors="surrogatepass").replace("~", "~7E").replace("%", "~")
    if name.endswith(".json") or not name.strip("."):
        text = text.replace(".", "~2E")
    return text or "~"


def unslug(text: str) -> str:
    return "" if text == "~" else unquote(text.replace("~", "%"), errors="surrogatepass")


def compile_slug(compile_id: str) -> str:
    """Return the compile id as a single path segment."""
    return compile_id.replace("/", "_")


def query_text(values: Mapping[str, object]) -> str:
    """Return the query string, without values that are None or empty."""
    return urlencode({name: value for name, value in values.items() if value is not None and value != ""})
