"""Encodes, decodes and scans the line grammar of TORCH_TRACE.

A record is ``V<MMDD> <HH:MM:SS.uuuuuu> <pid> <path>:<line>] <json>``, followed by its payload with one tab before each
line; `has_payload` in the JSON is the md5 of the payload
(torch/_logging/_internal.py, `TorchLogsFormatter` and `trace_structured`).
"""

from __future__ import annotations

import hashlib
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
    """Return the text before the JSON. `created` is local time; reserved characters of `path` are replaced."""
    safe_path = path.replace(":", "_").replace("\n", "_").replace("\r", "_")
    c = created  # strftime would take ten times as long
    time = f"{c.month:02}{c.day:02} {c.hour:02}:{c.minute:02}:{c.second:02}.{c.microsecond:06}"
    return f"V{time} {pid} {safe_path}:{line}]".encode("utf-8", "surrogateescape")


def encode_record(prefix: bytes, header: bytes, payload: bytes | None) -> bytes:
    """Return one record as it is in the file; `header` is one line of JSON and contains the payload's md5."""
    if payload is None:
        return prefix + b" " + header + b"\n"
    return prefix + b" " + header + b"\n\t" + payload.replace(b"\n", b"\n\t") + b"\n"


def encode_artifact(prefix: bytes, name: str, encoding: str, payload: bytes, envelope: Mapping[str, Any]) -> bytes:
    """Return an `artifact` record, the form of stepscope's own records."""
    header = {
        "artifact": {"name": name, "encoding": encoding},
        **envelope,
        "has_payload": payload_digest(payload),
    }
    return encode_record(prefix, orjson.dumps(header), payload)


class RawRecord(NamedTuple):
    """The position of a record in a log: byte offsets, and the line counted from 1."""

    line: int
    start: int
    header_end: int
    """End of the header line, without its line break."""
    payload_start: int
    """Offset of the payload's first tab; equal to `end` if there is no payload."""
    end: int


def scan(data: bytes) -> Iterator[RawRecord]:
    """Yield the positions of the records in a log, in order. Each line that is neither tabbed nor blank is a record.

    Blank lines belong to the record before them, since an editor that strips trailing blanks empties payload lines.
    Lines that are not records (`HEADER` does not match) are yielded as well, so that a reader can count them.
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


def decode_payload(raw: bytes) -> bytes:
    """Return the original payload, given its tabbed lines."""
    body = raw[:-1] if raw.endswith(b"\n") else raw
    return body[1:].replace(b"\n\t", b"\n")


def decode_payload_crlf(raw: bytes) -> bytes:
    """Return the original payload from a log whose line ends were converted to CRLF."""
    return decode_payload(raw.replace(b"\r\n", b"\n"))
