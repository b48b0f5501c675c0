"""Looks in a finished redacted file for every string that was to go, in plain, escaped and packed form."""

from __future__ import annotations

import base64
import binascii
import gzip
import html
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.redaction.kinds import KINDS
from stepscope.viewer.redaction.secrets import HOME, WORD, Secrets, is_distinctive
from stepscope.viewer.store.trace import Trace

_PACKED = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_JSON_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_LETTER_ESCAPE = re.compile(r"\\[nrtbf]")
_MARKDOWN_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_IN_FILE = re.compile(r"(?<![\\\w])\w{4,}")
"""A word that does not begin within an escape."""
_TAG = re.compile(r"<[^<>]*>")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){8,}")
_DEEPEST = 4
_PIECE_BYTES = 1 << 22


def check(name: str, data: bytes, secrets: Secrets, shown: Collection[str], trace: Trace) -> None:
    """Raise StepscopeError if the file holds a string of `secrets`, or a distinctive word of the log that is not in
    one of the texts `shown`."""
    kind = leftover(data, secrets, shown, trace)
    if kind is not None:
        raise StepscopeError(
            f"{name} was not written, because the check at its end found what --redact removes ({kind}) in it. Please"
            " report this fault of stepscope; --keep shows a kind if its texts may be seen.",
            1,
        )


def leftover(data: bytes, secrets: Secrets, shown: Collection[str], trace: Trace) -> str | None:
    """Return what kind of text is left in the file, or None."""
    texts = [*_unfolded(data)]
    words = {word for text in texts for word in _IN_FILE.findall(text)}
    known = {word for text in shown for word in WORD.findall(text)}
    strange = sorted(word for word in words - known if is_distinctive(word))
    for word in strange:
        if (kind := secrets.kind_of(word, known)) is not None:
            return KINDS[kind][0]
    if any(name in secrets.users for text in texts for _, name in HOME.findall(text)):
        return KINDS["user"][0]
    single = [" ".join(text.split()) for text in texts]
    for whole, kind in secrets.wholes.items():
        is_meant = words.issuperset(WORD.findall(whole)) and not any(whole in text for text in shown)
        if is_meant and any(whole in text for text in single):
            return KINDS[kind][0]
    return "another text of the log" if _in_log(strange, trace) else None


def _in_log(words: Collection[str], trace: Trace) -> bool:
    """Return whether a log has one of these words, in plain or in JSON's escaped form."""
    if not words:
        return False
    forms = {form for word in words for form in (word.encode(), json.dumps(word)[1:-1].encode())}
    wanted = re.compile(rb"(?<![A-Za-z0-9_])(?:" + b"|".join(map(re.escape, sorted(forms))) + rb")(?![A-Za-z0-9_])")
    for log in trace.logs:
        try:
            with log.data_path.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    if wanted.search(piece + file.readline()):
                        return True
        except OSError:  # a STORE outlives its logs
            continue
    return False


def _unfolded(data: bytes, depth: int = 0) -> Iterator[str]:
    """Yield the text of a file without escapes, and all that is packed in it."""
    if zipfile.is_zipfile(io.BytesIO(data)) and data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                yield member.filename
                yield from _unfolded(archive.read(member), depth + 1)
        return
    text = data.decode("utf-8", "replace")
    inner: list[bytes] = []

    def without(found: re.Match[str]) -> str:
        if depth < _DEEPEST and (packed := _unpacked(found[0])) is not None:
            inner.append(packed)
            return " "
        return found[0]

    text = _PACKED.sub(without, text)
    yield from _without_escapes(text)
    if depth and text[:1] in ("{", "["):
        with suppress(ValueError):
            yield from _without_escapes("\n".join(_strings(json.loads(text))))
    for packed in inner:
        yield from _unfolded(packed, depth + 1)


def _without_escapes(text: str) -> Iterator[str]:
    yield text
    plain = _LETTER_ESCAPE.sub(" ", _JSON_ESCAPE.sub(lambda found: chr(int(found[1], 16)), html.unescape(text)))
    yield plain
    yield unquote(plain)
    yield unquote(plain.replace("~", "%"))
    yield _MARKDOWN_ESCAPE.sub(r"\1", plain)
    yield _TAG.sub("", html.unescape(_TAG.sub("", text)))


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings of a JSON value, which hold the packed pages of a report."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for one in value:
            yield from _strings(one)


def _unpacked(text: str) -> bytes | None:
    """Return what a piece of base64 or hexadecimal digits holds if that is text or packed itself."""
    if _HEX.fullmatch(text):
        return _if_text(bytes.fromhex(text))
    for start in range(4):
        piece = text[start:].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            raw = base64.b64decode(piece + "=" * (-len(piece) % 4))
        except binascii.Error:
            continue
        for unpack in (gzip.decompress, zlib.decompress, lzma.decompress, _if_text):
            try:
                found = unpack(raw)
            except (OSError, EOFError, zlib.error, lzma.LZMAError):
                continue
            if found is not None:
                return found
    return None


def _if_text(raw: bytes) -> bytes | None:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return raw if text.isprintable() or all(char.isprintable() or char in "\n\r\t" for char in text) else None
