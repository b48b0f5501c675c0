"""The line grammar of TORCH_TRACE: encode, decode, scan.

A record is ``V<MMDD> <HH:MM:SS.uuuuuu> <pid> <path>:<line>] <json>`` and, after it, its payload with one tab
before each line; `has_payload` in the JSON is the md5 of the payload
(torch/_logging/_internal.py, `TorchLogsFormatter` and `trace_structured`).
"""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

HEADER = re.compile(
    rb"([VIWEC])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6,9}) +(\d+) ([^:\r\n]*):(\d+)\] (?:\[[^\]]*\] )?(.*)",
)
_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?(?:\r?\n)*")
_BOUNDARY = re.compile(rb"\n(?!\t|\r?\n)")
TAB, RETURN = 0x09, 0x0D
PIECE_BYTES = 1 << 20
ENVELOPE_KEYS = frozenset(
    {
        "rank",
        "compiled_autograd_id",
        "frame_id",
        "frame_compile_id",
        "attempt",
        "stack",
        "subgraph_name",
        "has_payload",
    }
)


def payload_digest(payload: bytes) -> str:
    return hashlib.md5(payload, usedforsecurity=False).hexdigest()


def encode_prefix(created: datetime, pid: int, path: str, line: int) -> bytes:
    """Everything before the JSON. `created` is local time; `path` loses what the grammar reserves."""
    safe_path = path.replace(":", "_").replace("\n", "_").replace("\r", "_")
    c = created  # strftime would take ten times as long
    time = f"{c.month:02}{c.day:02} {c.hour:02}:{c.minute:02}:{c.second:02}.{c.microsecond:06}"
    return f"V{time} {pid} {safe_path}:{line}]".encode("utf-8", "surrogateescape")


def encode_record(prefix: bytes, header: bytes, payload: bytes | None) -> bytes:
    """One record as it stands in the file. `header` is JSON on one line and names the payload's md5."""
    if payload is None:
        return prefix + b" " + header + b"\n"
    return prefix + b" " + header + b"\n\t" + payload.replace(b"\n", b"\n\t") + b"\n"


def encode_artifact(prefix: bytes, name: str, encoding: str, payload: bytes, envelope: Mapping[str, Any]) -> bytes:
    """An `artifact` record, the form in which stepscope's own records are written."""
    header = {
        "artifact": {"name": name, "encoding": encoding},
        **envelope,
        "has_payload": payload_digest(payload),
    }
    return encode_record(prefix, orjson.dumps(header), payload)


class RawRecord(NamedTuple):
    """A record's place in a log. Offsets in bytes, lines from 1."""

    line: int
    start: int
    header_end: int
    """Where the header line ends, without its line break."""
    payload_start: int
    """Where the payload's first tab stands; equals `end` when there is no payload."""
    end: int


def scan(data: bytes | mmap.mmap) -> Iterator[RawRecord]:
    """Places of the records in a log, in order. A record begins at each line not tabbed or blank.

    Blank lines belong to the record before them: an editor that strips trailing blanks empties payload lines.
    Lines that are no record are yielded as well: `HEADER` decides, so that a reader can count them.
    """
    size = len(data)
    first = _FIRST.match(data)
    start = first.end() if first else 0
    line = 1 + data[:start].count(b"\n")
    while start < size:
        boundary = _BOUNDARY.search(data, start)
        end = boundary.end() if boundary else size
        header_end = data.find(b"\n", start, end)
        if header_end < 0:
            yield RawRecord(line, start, end, end, end)
            return
        payload_start = header_end + 1
        if payload_start < end and data[payload_start] != TAB:
            tab = data.find(b"\n\t", header_end, end)
            payload_start = end if tab < 0 else tab + 1
        if header_end > start and data[header_end - 1] == RETURN:
            yield RawRecord(line, start, header_end - 1, payload_start, end)
        else:
            yield RawRecord(line, start, header_end, payload_start, end)
        line += 1 if payload_start == header_end + 1 == end else data[start:end].count(b"\n")
        start = end


def pieces(data: bytes | mmap.mmap, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """`data` cut before lines that begin with a ``V``, as all records do that PyTorch writes: (place, piece).

    A piece is longer than `piece_bytes` only where no such line is. `scan` finds in the pieces what it finds in `data`.
    """
    size, start = len(data), 0
    while start < size:
        length = piece_bytes
        piece = data[start : start + length]
        while start + length < size and (cut := piece.rfind(b"\nV", 1) + 1) == 0:
            length *= 2
            piece = data[start : start + length]
        if start + length < size:
            piece = piece[:cut]
        yield start, piece
        if isinstance(data, mmap.mmap):
            _let_go(data, start, start + len(piece))
        start += len(piece)


def _let_go(data: mmap.mmap, start: int, end: int) -> None:
    """Whole pages of the file that have been read need not stay in this process's memory; who reads them again gets
    the same bytes from the file."""
    if hasattr(mmap, "MADV_DONTNEED"):
        first, last = (place - place % mmap.PAGESIZE for place in (start, end))
        data.madvise(mmap.MADV_DONTNEED, first, max(last - first, 1))


def decode_payload(raw: bytes) -> bytes:
    """The payload whose tabbed lines are `raw`, byte for byte as it was written."""
    body = raw[:-1] if raw.endswith(b"\n") else raw
    return body[1:].replace(b"\n\t", b"\n")


def decode_payload_crlf(raw: bytes) -> bytes:
    """Like `decode_payload`, for a log whose line ends were turned into CRLF on the way."""
    return decode_payload(raw.replace(b"\r\n", b"\n"))
