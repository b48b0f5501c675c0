"""Bytes of one log -> its records, in order, with everything that was wrong on the way.

Nearly every record is whole: it begins at a line that begins with a ``V``, each line of its payload has its tab, and
the md5 fits. Such a one is read in one go; where anything is amiss, `scan` takes the same bytes line by line.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from tracer.log_format import (
    ENVELOPE_KEYS,
    HEADER,
    RETURN,
    TAB,
    RawRecord,
    decode_payload,
    decode_payload_crlf,
    payload_digest,
    pieces,
    scan,
)
from viewer.ingest import lenient_json
from viewer.ingest.clock import STAMP_BYTES, Clock
from viewer.ingest.damage import Damage

UNREADABLE = "unreadable"
_NUMBER_DIGITS = 18
_LARGEST_ID = 2**63 - 1
_MOST_REMEMBERED = 1000
_DIGEST_BYTES = 32
_POINT = 0x2E
_FRACTION_END = STAMP_BYTES + 8
"""Behind the level, the stamp, a point and microseconds, as PyTorch writes them."""


@dataclass(slots=True)
class LogRecord:
    """One record of a log. `event` is `UNREADABLE` where the JSON is broken."""

    place: RawRecord
    pid: int | None
    source: str
    event: str = UNREADABLE
    value: Any = None
    """What the event's name stands for in the JSON: mostly an object."""
    name: str | None = None
    """Of an artifact, and of whatever else has one."""
    envelope: dict[str, Any] = field(default_factory=dict)
    """What else is in the JSON, but for the md5."""
    compile_id: str | None = None
    attempt: int | None = None
    time_ns: int | None = None
    payload: bytes | None = None
    payload_bytes: int = 0
    """Length of its tabbed lines in the log."""
    crlf: bool = False
    sound: bool = True
    """Header and payload are as they were written."""
    record: int = -1
    """Its id in the index."""


_Origin = tuple[int | None, str]


class _Header(NamedTuple):
    """Fields of `LogRecord` that a header line holds, but for its time."""

    pid: int | None
    source: str
    event: str
    value: Any
    name: str | None
    envelope: dict[str, Any]
    compile_id: str | None
    attempt: int | None


def read_records(data: bytes | mmap.mmap, damage: Damage, clock: Clock) -> Iterator[LogRecord]:
    """Records of a log in order; lines that are none are counted in `damage`. Never raises for what `data` holds."""
    return _Reader(len(data), damage, clock).records(data)


class _Reader:
    """Where one log is being read."""

    def __init__(self, size: int, damage: Damage, clock: Clock) -> None:
        self._size, self._damage, self._clock = size, damage, clock
        self._origins: dict[bytes, _Origin] = {}
        """What stands between a time stamp and the JSON -> process and source."""
        self._headers: dict[bytes, _Header] = {}
        """What stands between a time stamp and the md5, of headers that are remembered."""
        self._line, self._byte = 1, 0
        """Of the piece's next record, and of the piece's begin."""

    def records(self, data: bytes | mmap.mmap) -> Iterator[LogRecord]:
        for self._byte, piece in pieces(data):
            start, size = 0, len(piece)
            while start < size:
                end = piece.find(b"\nV", start) + 1 or size
                record = self._whole(piece, start, end)
                if record is None:
                    yield from self._by_lines(piece[start:end], self._byte + start)
                else:
                    yield record
                start = end

    def _whole(self, piece: bytes, start: int, end: int) -> LogRecord | None:
        """The record that `piece` holds from `start` to `end`, unless anything is unusual about it."""
        header_end = piece.find(b"\n", start, end)
        if header_end - start < _FRACTION_END:
            return None
        crlf = piece[header_end - 1] == RETURN
        found = self._header(piece, start, header_end - crlf)
        if found is None:
            return None
        time_ns, header, digest = found
        payload, lines, payload_start = None, 1, header_end + 1
        if payload_start < end:
            whole = _whole_payload(piece, payload_start, end, crlf)
            if whole is None or digest is None or payload_digest(whole[0]) != digest:
                return None
            payload, lines = whole
            if crlf and not self._damage.counts["crlf"]:
                self._note_crlf(self._line, self._byte + start)
        elif digest is not None:
            return None
        byte = self._byte
        place = RawRecord(self._line, byte + start, byte + header_end - crlf, byte + payload_start, byte + end)
        self._line += lines
        return LogRecord(place, *header, time_ns, payload, end - payload_start, crlf and payload is not None)

    def _header(self, piece: bytes, start: int, stop: int) -> tuple[int, _Header, str | None] | None:
        """Time, content and announced md5 of the header line from `start` to `stop`, if its time is in microseconds."""
        fraction_end = start + _FRACTION_END
        fraction = piece[fraction_end - 6 : fraction_end]
        if piece[fraction_end - 7] != _POINT or not fraction.isdigit():
            return None
        digest_start = stop - _DIGEST_BYTES - 2
        header = self._headers.get(piece[fraction_end:digest_start])
        if header is not None and piece.endswith(b'"}', digest_start, stop):
            digest: str | None = piece[digest_start : stop - 2].decode("latin-1")
        else:
            header = self._new_header(piece, start, fraction_end, stop)
            if header is None:
                return None
            digest = header.envelope.pop("has_payload", None)
            if not header.value and digest is not None:
                self._remember(piece[fraction_end:stop], header, digest)
        second_ns = self._clock.second_ns(piece[start + 1 : start + 1 + STAMP_BYTES])
        return None if second_ns is None else (second_ns + int(fraction) * 1000, header, digest)

    def _new_header(self, piece: bytes, start: int, fraction_end: int, stop: int) -> _Header | None:
        json_start = piece.find(b"] ", fraction_end, stop) + 2
        origin = self._origin(piece, start, fraction_end, json_start, stop)
        if origin is None:
            return None
        try:
            content = _content(orjson.loads(piece[json_start:stop]))
        except orjson.JSONDecodeError:
            return None
        ids = _ids(content[3]) if content is not None else None
        return None if content is None or ids is None else _Header(*(*origin, *content, *ids))

    def _origin(self, piece: bytes, start: int, fraction_end: int, json_start: int, stop: int) -> _Origin | None:
        """What stands between time stamp and JSON."""
        text = piece[fraction_end:json_start]
        origin = self._origins.get(text)
        if origin is None:
            match = HEADER.match(piece, start, stop)
            if match is None or match.start(11) != json_start or match.end(7) != fraction_end:
                return None
            parts = match.groups()
            if len(parts[7]) > _NUMBER_DIGITS or len(self._origins) >= _MOST_REMEMBERED:
                return None
            origin = self._origins[text] = (int(parts[7]), _source(parts))
        return origin

    def _remember(self, text: bytes, header: _Header, digest: str) -> None:
        """Headers without content are many, and differ by time and md5 alone."""
        begin, end = text[: -_DIGEST_BYTES - 2], text[-_DIGEST_BYTES - 2 :]
        if begin.endswith(b'"has_payload": "') and end == digest.encode() + b'"}':
            if len(self._headers) >= _MOST_REMEMBERED:
                self._headers.clear()
            self._headers[begin] = header

    def _by_lines(self, data: bytes, byte: int) -> Iterator[LogRecord]:
        """Records of a part of the log that begins at `byte`."""
        first_line = self._line
        self._line += data.count(b"\n")
        for near in scan(data):
            start, header_end, payload_start, end = (place + byte for place in near[1:])
            place = RawRecord(first_line + near.line - 1, start, header_end, payload_start, end)
            line = data[near.start : near.header_end]
            last = end == self._size
            match = HEADER.match(line)
            if match is None:
                torn = last and not data.endswith(b"\n") and line[:1] in (b"V", b"\t")
                self._damage.add("truncated" if torn else "not_a_record", line, place.line, start)
                continue
            parts = match.groups()
            pid = int(parts[7]) if len(parts[7]) <= _NUMBER_DIGITS else None
            record = LogRecord(place, pid, _source(parts), time_ns=self._clock.time_ns(parts[1:7]))
            if record.time_ns is None or record.pid is None:
                self._damage.add("absurd_value", line[: match.start(11)], place.line, start)
            header_ok = self._read_header(record, parts[10], last)
            self._read_payload(record, data[near.payload_start : near.end], last and header_ok)
            yield record

    def _read_header(self, record: LogRecord, text: bytes, last: bool) -> bool:
        place = record.place
        try:
            content = _content(lenient_json.loads(text))
        except ValueError:
            content = None
        if content is None:
            torn = last and place.payload_start == place.end
            self._damage.add("truncated" if torn else "broken_header", text, place.line, place.start)
            record.sound = False
            return False
        if not _is_utf8(text):
            self._damage.add("not_utf8", text, place.line, place.start)
        record.event, record.value, record.name, record.envelope = content
        ids = _ids(record.envelope)
        if ids is None:
            self._damage.add("absurd_value", text, place.line, place.start)
        else:
            record.compile_id, record.attempt = ids
        return True

    def _read_payload(self, record: LogRecord, raw: bytes, last: bool) -> None:
        place, digest = record.place, record.envelope.pop("has_payload", None)
        if not raw:
            if digest is not None:
                record.sound = False
                reason = "truncated" if last else "missing_payload"
                self._damage.add(reason, record.name or record.event, place.line, place.start)
            return
        raw = _without_blank_end(raw)
        record.payload_bytes = len(raw)
        as_crlf = raw.endswith(b"\r\n")
        # What fits is found by the md5; where nothing fits, the last, likeliest reading stays.
        for record.crlf in (as_crlf, not as_crlf, as_crlf) if b"\r\n" in raw else (False,):
            record.payload = decode_payload_crlf(raw) if record.crlf else decode_payload(raw)
            if digest is None or payload_digest(record.payload) == digest:
                if record.crlf:
                    self._note_crlf(place.line, place.start)
                return
        record.sound = False
        excerpt = b"%s: %s" % ((record.name or record.event).encode(), record.payload or b"")
        self._damage.add(_payload_damage(record.payload or b"", last), excerpt, place.line, place.start)

    def _note_crlf(self, line: int, byte: int) -> None:
        self._damage.once("crlf", "the log's line ends are CRLF", line, byte)


def _source(header: Sequence[bytes]) -> str:
    return f"{header[8].decode('utf-8', 'replace')}:{header[9].decode()}"


def _content(header: Any) -> tuple[str, Any, str | None, dict[str, Any]] | None:
    """Event, value, name and envelope in a header's JSON; None when it names no event."""
    if type(header) is not dict:
        return None
    for event in header:
        if event not in ENVELOPE_KEYS:
            break
    else:
        return None
    value = header.pop(event)
    name = value.get("name") if type(value) is dict else None
    return event, value, name if type(name) is str else None, header


def _ids(envelope: Mapping[str, Any]) -> tuple[str | None, int | None] | None:
    """Compile id and attempt; None when one of their numbers cannot be."""
    autograd, attempt = envelope.get("compiled_autograd_id"), envelope.get("attempt")
    frame, compile_number = envelope.get("frame_id"), envelope.get("frame_compile_id")
    for number in (frame, compile_number, attempt, autograd):
        if number is not None and not (type(number) is int and 0 <= number <= _LARGEST_ID):
            return None
    inside = f"{frame}/{compile_number}" if frame is not None and compile_number is not None else None
    if autograd is not None:
        inside = f"!{autograd}/{inside}" if inside else f"!{autograd}"
    return inside, attempt


def _whole_payload(piece: bytes, start: int, end: int, crlf: bool) -> tuple[bytes, int] | None:
    """The payload whose lines stand in `piece` from `start` to `end`, and the record's lines; None unless each line has
    its tab and ends as the others do."""
    line_end, between = (b"\r\n", b"\r\n\t") if crlf else (b"\n", b"\n\t")
    if piece[start] != TAB or not piece.endswith(line_end, start, end):
        return None
    first, stop = start + 1, end - len(line_end)
    payload = piece[first:stop].replace(between, b"\n")
    breaks = payload.count(b"\n")
    removed = stop - first - len(payload)
    return (payload, breaks + 2) if removed == breaks * len(line_end) else None


def _without_blank_end(raw: bytes) -> bytes:
    """Tabbed lines without blank lines behind them; a payload's own empty last line is a line with a tab."""
    if not raw.endswith((b"\n\n", b"\n\r\n")):
        return raw
    return raw.rstrip(b"\r\n") + (b"\r\n" if raw.endswith(b"\r\n") else b"\n")


def _payload_damage(payload: bytes, last: bool) -> str:
    if last:
        return "truncated"
    if b"\x00" in payload:
        return "nul_bytes"
    return "wrong_md5" if _is_utf8(payload) else "not_utf8"


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
