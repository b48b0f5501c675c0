"""Turns a page of the dashboard into a page that needs no server."""

from __future__ import annotations

import re
from html import escape, unescape
from urllib.parse import urlencode

from stepscope.viewer.exports.html.visit import OTHER_ORDER, Visited
from stepscope.viewer.text.formats import to_json
from stepscope.viewer.web import assets

SCRIPTS = {"#js/core/server.js": "js/exports/folder.js"}
"""Modules that ask the server, and those that take their place."""
NOT_HERE = "This page is not in this folder; `stepscope serve TRACE` shows it."
_EXTERNAL = re.compile(r"[a-z][a-z-]*://", re.I)
_LINK = re.compile(r'(<a\b[^<>]*?) href="([^"]*)"([^<>]*>)(.*?)</a>', re.S)
_ASSET = re.compile(r' (src|href)="/static/')
_FORM = re.compile(r"<form\b(?=[^<>]* action=)[^<>]*>.*?</form>", re.S)
_SEARCH = '<form class="search" action="/search"'
_NAVIGATION = re.compile(r'<nav class="nav".*?</nav>', re.S)
_MAIN = '<main id="main" tabindex="-1">'
_CHARSET = '<meta charset="utf-8">'


def import_map() -> str:
    """Return the import map of the pages, with addresses relative to them."""
    names = {name: SCRIPTS.get(name, name[1:]) for name in assets.script_modules()}
    return to_json({"imports": {name: f".{assets.address(file)}" for name, file in names.items()}})


def policy(imports: str) -> str:
    """Return the content security policy of the pages, with what a `meta` element may contain."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {assets.csp_hash(imports)}",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "form-action 'none'",
            "base-uri 'none'",
        )
    )


class Rewriter:
    """Rewrites the pages of one folder."""

    def __init__(self, visited: Visited, imports: str) -> None:
        self._visited = visited
        self._head = (
            f'{_CHARSET}\n<meta http-equiv="Content-Security-Policy" content="{escape(policy(imports))}">\n'
            '<meta name="referrer" content="no-referrer">'
        )

    def rewritten(self, html: str, note: str = "") -> str:
        """Return a page with relative links and without what needs a server, and with `note` at its top."""
        html = html.replace(_CHARSET, self._head, 1)
        html = _ASSET.sub(r' \1="static/', html)
        # A form of this method sends nothing, which the policy would refuse; a script reads it.
        html = html.replace(_SEARCH, '<form class="search" method="dialog"', 1)
        html = _FORM.sub("", html)
        html = _NAVIGATION.sub(self._navigation, html)
        if note:
            html = html.replace(_MAIN, f'{_MAIN}\n<p class="note" role="status">{escape(note)}</p>', 1)
        return _LINK.sub(self._link, html)

    def _navigation(self, found: re.Match[str]) -> str:
        """Leave out the entries of pages that are not in the folder."""
        return re.sub(r'<a href="([^"]*)".*?</a>', lambda link: link[0] if self.file_of(link[1]) else "", found[0])

    def _link(self, found: re.Match[str]) -> str:
        before, quoted, after, text = found.groups()
        href = unescape(quoted)
        if href.startswith("#") or _EXTERNAL.match(href):
            return found[0]
        file = self.file_of(href)
        if file is not None:
            return f'{before} href="{escape(file)}"{after}{text}</a>'
        address = self._visited.target(href)
        if address and not OTHER_ORDER.isdisjoint(address.query):
            return text.rstrip(" ▲▼")  # without a link in its head, a column is sorted in the browser
        title = "" if " title=" in before + after else f' title="{NOT_HERE}"'
        return f"{before}{title}{after}{text}</a>"

    def file_of(self, link: str) -> str | None:
        """Return the relative address of the file that a link of the dashboard leads to, or None if there is none."""
        page, _, place = link.partition("#")
        address = self._visited.target(page)
        file = self._visited.files.get(address.key) if address else None
        if address is None or file is None:
            return None
        state = f"?{urlencode(address.state)}" if address.state else ""
        return f"{file}{state}#{place}" if place else f"{file}{state}"
