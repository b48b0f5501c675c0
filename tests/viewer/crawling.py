"""Visits the pages of a trace as a browser would, from link to link, and says what would run or load anything."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import PurePosixPath
from urllib.parse import urljoin, urlsplit

from stepscope.viewer.web import registry
from tests.viewer.client import Client

SCRIPT_TYPES = {"application/json", "importmap", "module"}
REFUSED_TAGS = {"img", "iframe", "object", "embed", "base", "style", "frame", "applet"}


class PageChecker(HTMLParser):
    """Collects links; `wrong` says what would run, load or lead elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in REFUSED_TAGS:
            self.wrong.append(f"<{tag}>")
        if tag == "script" and not (values.get("src", "").startswith("/static/") or values.get("type") in SCRIPT_TYPES):
            self.wrong.append(f"<script {values}>")
        for name, value in values.items():
            if name.startswith("on") or name == "style" or name == "srcdoc":
                self.wrong.append(f"{tag} {name}={value}")
            elif name in ("href", "src", "action", "formaction", "poster", "data"):
                self._address(tag, value)

    def _address(self, tag: str, value: str) -> None:
        own = value.startswith(("/", "#")) and not value.startswith(("//", "/\\"))
        if not own and not (tag == "a" and urlsplit(value).scheme in ("http", "https", "vscode")) and tag != "link":
            self.wrong.append(f"{tag} leads to {value}")
        if own and tag == "a":
            self.links.append(value)


def pattern_of(address: str) -> str:
    """Addresses that show the same kind of page have one."""
    parts = PurePosixPath(urlsplit(address).path).parts
    return "/".join("N" if index == 2 else part for index, part in enumerate(parts))


EVERY_PAGE = tuple(page.path for page in registry.pages() if "{" not in page.path and page.path != "/curves")
"""Addresses that need nothing behind them."""


def visits(addresses: list[str]) -> dict[str, list[str]]:
    """Path of each page -> the addresses that lead to it."""
    patterns = {page.path: re.compile(re.sub(r"\{\w+\}", "[^/]+", page.path)) for page in registry.pages()}
    return {
        path: [address for address in addresses if pattern.fullmatch(urlsplit(address).path)]
        for path, pattern in patterns.items()
    }


def crawl(client: Client, each: int = 1, most: int = 25, start: tuple[str, ...] = ("/", "/problems")) -> dict[str, int]:
    """Visits pages from `start` on, of each kind at most `each` besides; address -> status. Fails for a page that runs
    or loads anything."""
    waiting, seen, kinds = list(start), dict[str, int](), dict[str, int]()
    while waiting and len(seen) < most:
        address = waiting.pop(0)
        kind = pattern_of(address)
        if address in seen or (address not in start and kinds.get(kind, 0) >= each):
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        answer = client.get(address)
        seen[address] = answer.status_code
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy, address
        assert "unsafe" not in policy, address
        if answer.headers.get("content-type", "").startswith("text/html"):
            checker = PageChecker()
            checker.feed(answer.text)
            assert not checker.wrong, (address, checker.wrong[:5])
            waiting += [urljoin(address, link).partition("#")[0] for link in checker.links]
        elif answer.status_code != 303:
            assert "attachment" in answer.headers["content-disposition"], address
            assert answer.headers["x-content-type-options"] == "nosniff", address
    return seen
