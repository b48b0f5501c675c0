"""Packs the pages of a report except the first; its script unpacks them."""

from __future__ import annotations

import base64
import gzip
import re
from html import unescape
from typing import Any

from stepscope.viewer.text.formats import to_json

_START = re.compile(r'(?=<div class="page" data-route="([^"]*)">)')
"""Begin of a page, which no text from a log can look like, because templates escape it."""
_TERM = re.compile(r'<span class="term-text" id="([^"]*)" popover>.*?</span>')
"""The explanation of a term."""
_END = "</main>"
_DATA = 'id="report-data">'


def with_packed_pages(html: str, data: dict[str, Any]) -> str:
    """Return the report with its pages beside `data` in the element for it, packed, and no longer in its text. The
    explanations of terms that the first page does not use are packed, too."""
    before, end, after = html.partition(_END)
    first, *others = _START.split(before)
    pages = {unescape(route): page.rstrip() for route, page in zip(others[::2], others[1::2], strict=True)}
    terms = [term[0] for term in _TERM.finditer(first) if f'popovertarget="{term[1]}"' not in first]
    first = _TERM.sub(lambda term: "" if term[0] in terms else term[0], first)
    element, place, rest = after.partition(_DATA)
    return "".join((first, end, element, place, packed({"pages": pages, "terms": terms, **data}), rest))


def packed(data: Any) -> str:
    return base64.b64encode(gzip.compress(to_json(data).encode(), 9, mtime=0)).decode()
