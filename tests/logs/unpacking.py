"""Unpacks a report to one text that contains everything that a reader could extract from it."""

from __future__ import annotations

import base64
import binascii
import gzip
import html as markup
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from stepscope.viewer.report.write import render_report
from stepscope.viewer.store.trace import Trace

_PACKED = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_DEEPEST = 4


def everything(text: str, depth: int = 0) -> str:
    """Return `text` without escapes, together with everything in it that is encoded by base64 and gzip.

    The base64 of what was compressed is left out: any three characters may be in it by chance."""
    inside = [*_unpacked(text)]
    for packed, _, is_compressed in inside:
        if is_compressed:
            text = text.replace(packed, "")
    plain = [text, markup.unescape(text), unquote(text), unquote(text.replace("~", "%"))]
    plain.append(re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text))
    if depth and text[:1] in ("{", "["):
        with suppress(ValueError):
            plain.append("\n".join(_strings(json.loads(text))))
            plain.append(markup.unescape(plain[-1]))
    if depth < _DEEPEST:
        plain += [everything(inner, depth + 1) for _, inner, _ in inside]
    return "\n".join(dict.fromkeys(plain))


def _unpacked(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield what looks like base64, the text in it, and whether that was compressed."""
    for packed in _PACKED.findall(text):
        try:
            raw = base64.b64decode(packed + "=" * (-len(packed) % 4))
        except binascii.Error:
            continue
        for unpack in (gzip.decompress, zlib.decompress, lzma.decompress, bytes):
            try:
                yield packed, unpack(raw).decode("utf-8"), unpack is not bytes
            except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError):
                continue
            break


def data_of(html: str) -> dict[str, Any]:
    """Return the data that the scripts of a report unpack."""
    found = re.search(r'id="report-data">([^<]*)<', html)
    assert found
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for one in value:
            yield from _strings(one)


def whole_report(trace: Trace, **options: Any) -> str:
    """Return the text of a report with the pages and explanations that its script unpacks in their places."""
    html = render_report(trace, **options)
    first, end, rest = html.partition("</main>")
    data = data_of(html)
    return first + "\n".join([*data["terms"], *data["pages"].values()]) + end + rest
