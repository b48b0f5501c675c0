"""Unpacks a report to one text that contains everything that a reader could extract from it."""

from __future__ import annotations

import base64
import binascii
import gzip
import html as markup
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_PACKED = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_DEEPEST = 4


def everything(text: str, depth: int = 0) -> str:
    """Return `text` without escapes, together with everything in it that is encoded by base64 and gzip."""
    plain = [text, markup.unescape(text), unquote(text), unquote(text.replace("~", "%"))]
    plain.append(re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text))
    if depth < _DEEPEST:
        plain += [everything(inner, depth + 1) for inner in _unpacked(text)]
    return "\n".join(dict.fromkeys(plain))


def _unpacked(text: str) -> Iterator[str]:
    for packed in _PACKED.findall(text):
        try:
            raw = base64.b64decode(packed + "=" * (-len(packed) % 4))
        except binascii.Error:
            continue
        for unpack in (gzip.decompress, zlib.decompress, bytes):
            try:
                yield unpack(raw).decode("utf-8")
            except (OSError, EOFError, zlib.error, UnicodeDecodeError):
                continue
            break


def data_of(html: str) -> dict[str, Any]:
    """Return the data that the scripts of a report unpack."""
    found = re.search(r'id="report-data">([^<]*)<', html)
    assert found
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return data
