"""Reads the packed logs in a report. Nothing in it is run, and no name in it is used as a path."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from stepscope.viewer.errors import StepscopeError

HEAD = b'<meta name="generator" content="stepscope report">'
"""The mark of a report in its first bytes."""
LOG, RING = "application/x-stepscope-log", "application/x-stepscope-ring"
"""Types of the elements with a packed log, and with the launch ring that was beside it."""
_ELEMENT = re.compile(
    rb'<script type="('
    + b"|".join((LOG.encode(), RING.encode()))
    + rb')" data-log="([^"<>]{0,2000})">([A-Za-z0-9+/=]*)<'
)
_SAFE = re.compile(r"[^\w.+-]")


@dataclass(frozen=True)
class PackedLog:
    """A log in a report, still packed."""

    name: str
    """File name that the log had, without characters that have a meaning in paths."""
    packed: bytes
    packed_ring: bytes | None


def is_report(head: bytes) -> bool:
    return head.lstrip()[:15].lower() == b"<!doctype html>" and HEAD in head


def packed_logs(path: Path) -> Iterator[PackedLog]:
    """Yield the logs of the report at `path`. Raises StepscopeError if it has none."""
    found = _ELEMENT.findall(path.read_bytes())
    rings = {name: _bytes(text, path) for kind, name, text in found if kind == RING.encode()}
    logs = [(name, text) for kind, name, text in found if kind == LOG.encode()]
    if not logs:
        raise StepscopeError(
            f"{path} is a report without its log, as one is that is redacted or whose log was too large: open it in a"
            " browser, or ask for the log."
        )
    for number, (name, text) in enumerate(logs):
        plain = _SAFE.sub("_", unescape(name.decode("utf-8", "replace")).replace("\\", "/").rpartition("/")[2])
        yield PackedLog(plain[-200:].lstrip(".") or f"{number}.log", _bytes(text, path), rings.get(name))


def _bytes(text: bytes, path: Path) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise StepscopeError(f"The log in the report {path} is damaged: ask for the report or the log again.") from None
