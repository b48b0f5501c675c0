"""Bytes of one log -> its records, in order, with everything that was wrong on the way.

Records that are whole are read many at once; where anything is amiss, `scan` takes the same bytes line by line.
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
    decode_payload,
    decode_payload_crlf,
    payload_digest,
    pieces,
    scan,
)
from viewer.ingest import lenient_json
from viewer.ingest.clock import STAMP_BYTES, Clock
from viewer.ingest.damage import Damage
from viewer.ingest.record_columns import DIGEST_BYTES, FRACTION_END, TAIL_BYTES, Kind, RecordColumns, Taken

UNREADABLE = "unreadable"
_NUMBER_DIGITS = 18
_LARGEST_ID = 2**63 - 1
_MOST_REMEMBERED = 1000


@dataclass(slots=True)
class Header:
    """What a header line holds but for its time; many records share one. `event` is `UNREADABLE` where the JSON is
    broken."""

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
    rank: int | None = None

    def kind(self) -> Kind:
        name, encoding, value = self.name, None, self.value
        if value and type(value) is dict:
            name = name or lenient_json.text(value.get("filename"))
            encoding = lenient_json.text(value.get("encoding"))
        return Kind(self.pid, self.source, self.event, name, encoding, self.compile_id, self.attempt)


class Place(NamedTuple):
    """Where a record begins."""

    line: int
    start: int


@dataclass(slots=True)
class LogRecord:
    """One record of a log."""

    record: int
    """Its id in the index."""
    header: Header
    line: int
    byte: int
    time_ns: int | None
    payload: bytes | None
    sound: bool = True
    """Header and payload are as they were written."""

    @property
    def place(self) -> Place:
        return Place(self.line, self.byte)

    @property
    def pid(self) -> int | None:
        return self.header.pid

    @property
    def source(self) -> str:
        return self.header.source

    @property
    def event(self) -> str:
        return self.header.event

    @property
    def value(self) -> Any:
        return self.header.value

    @property
    def name(self) -> str | None:
        return self.header.name

    @property
    def compile_id(self) -> str | None:
        return self.header.compile_id


_Origin = tuple[int | None, str]


def read_records(
    data: bytes | mmap.mmap, damage: Damage, clock: Clock, columns: RecordColumns, first: int, *, at_once: bool
) -> Iterator[LogRecord]:
    """Records of a log in order, which become rows of `columns` and have ids from `first` on; lines that are none are
    counted in `damage`. Never raises for what `data` holds.

    `at_once`: whole records are found by numpy, which is worth its import for a log of some megabytes.
    """
    reader = _Reader(len(data), damage, clock, columns, first)
    return reader.at_once(data) if at_once else reader.by_lines(data)


class _Reader:
    """Where one log is being read."""

    def __init__(self, size: int, damage: Damage, clock: Clock, columns: RecordColumns, first: int) -> None:
        self._size, self._damage, self._clock, self._columns, self._first = size, damage, clock, columns, first
        self._origins: dict[bytes, _Origin] = {}
        """What stands between a time stamp and the JSON -> process and source."""
        self._headers: dict[bytes, tuple[Header, int]] = {}
        """What stands between a time stamp and the md5 -> header and its kind, of headers that are remembered."""
        self._line = 1
        """Of the piece's begin."""

    def by_lines(self, data: bytes | mmap.mmap) -> Iterator[LogRecord]:
        for byte, piece in pieces(data):
            yield from self._by_lines(piece, self._line, byte)
            self._line += piece.count(b"\n")

    def at_once(self, data: bytes | mmap.mmap) -> Iterator[LogRecord]:
        for byte, piece in pieces(data):
            yield from self._at_once(piece, byte)

    def _at_once(self, piece: bytes, byte: int) -> Iterator[LogRecord]:
        from viewer.ingest.whole import records_of

        text, digests, places, found, line_breaks = records_of(piece, self._line, byte)
        remembered, second_ns = self._headers, self._clock.second_ns
        taken = Taken([], [], [])
        record = self._first + len(self._columns)
        for i, (start, stop, end, line, fraction_ns, first, last, crlf, is_whole) in enumerate(found):
            header = payload = digest = since_ns = None
            if is_whole:
                key = piece[start + FRACTION_END : stop - TAIL_BYTES]
                if first >= 0:
                    digest = digests[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES]
                    payload = text[first:last]
                if payload is None or payload_digest(payload) == digest:
                    header = (remembered.get(key) if digest else None) or self._new_header(
                        piece, start, stop, key, digest
                    )
                    since_ns = second_ns(piece[start + 1 : start + 1 + STAMP_BYTES])
            if header is None or since_ns is None:
                self._columns.extend(places, taken)
                taken = Taken([], [], [])
                yield from self._by_lines(piece[start:end], line, byte + start)
                record = self._first + len(self._columns)
                continue
            if crlf and digest:
                self._note_crlf(line, byte + start)
            taken.which.append(i)
            taken.kind.append(header[1])
            taken.time_ns.append(since_ns + fraction_ns)
            yield LogRecord(record, header[0], line, byte + start, since_ns + fraction_ns, payload)
            record += 1
        self._columns.extend(places, taken)
        self._line += line_breaks

    def _new_header(
        self, piece: bytes, start: int, stop: int, key: bytes, digest: str | None
    ) -> tuple[Header, int] | None:
        """The header line from `start` to `stop` and its kind, unless it is unusual or announces another payload."""
        json_start = piece.find(b"] ", start + FRACTION_END, stop) + 2
        origin = self._origin(piece, start, start + FRACTION_END, json_start, stop)
        if origin is None:
            return None
        try:
            content = _content(orjson.loads(piece[json_start:stop]))
        except orjson.JSONDecodeError:
            return None
        ids = _ids(content[3]) if content is not None else None
        if content is None or ids is None or content[3].pop("has_payload", None) != digest:
            return None
        pid, source = origin
        header = Header(pid, source, *content, *ids, lenient_json.int64(content[3].get("rank")))
        found = header, self._columns.kind(header.kind())
        if not header.value and key.endswith(b'"has_payload": "'):
            # Headers without content are many, and differ by time and md5 alone.
            if len(self._headers) >= _MOST_REMEMBERED:
                self._headers.clear()
            self._headers[key] = found
        return found

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

    def _by_lines(self, data: bytes, first_line: int, byte: int) -> Iterator[LogRecord]:
        """Records of a part of the log that begins at `byte`."""
        for near in scan(data):
            line, start = first_line + near.line - 1, near.start + byte
            header_line = data[near.start : near.header_end]
            last = near.end + byte == self._size
            match = HEADER.match(header_line)
            if match is None:
                torn = last and not data.endswith(b"\n") and header_line[:1] in (b"V", b"\t")
                self._damage.add("truncated" if torn else "not_a_record", header_line, line, start)
                continue
            parts = match.groups()
            pid = int(parts[7]) if len(parts[7]) <= _NUMBER_DIGITS else None
            time_ns = self._clock.time_ns(parts[1:7])
            if time_ns is None or pid is None:
                self._damage.add("absurd_value", header_line[: match.start(11)], line, start)
            torn = last and near.payload_start == near.end
            header = self._read_header(Header(pid, _source(parts)), parts[10], torn, Place(line, start))
            record = LogRecord(self._first + len(self._columns), header, line, start, time_ns, None)
            record.sound = header.event != UNREADABLE
            crlf, payload_bytes = self._read_payload(record, data[near.payload_start : near.end], last)
            has_payload = record.payload is not None
            self._columns.add(
                self._columns.kind(header.kind()), line, start, near.header_end - near.start,
                near.payload_start + byte if has_payload else None, payload_bytes if has_payload else None,
                time_ns, crlf,
            )  # fmt: skip
            yield record

    def _read_header(self, header: Header, text: bytes, torn: bool, place: Place) -> Header:
        try:
            content = _content(lenient_json.loads(text))
        except ValueError:
            content = None
        if content is None:
            self._damage.add("truncated" if torn else "broken_header", text, *place)
            return header
        if not _is_utf8(text):
            self._damage.add("not_utf8", text, *place)
        ids = _ids(content[3])
        if ids is None:
            self._damage.add("absurd_value", text, *place)
        rank = lenient_json.int64(content[3].get("rank"))
        return Header(header.pid, header.source, *content, *(ids or (None, None)), rank)

    def _read_payload(self, record: LogRecord, raw: bytes, last: bool) -> tuple[bool, int]:
        """Gives `record` the payload whose tabbed lines are `raw`; whether they are CRLF, and their length."""
        digest = record.header.envelope.pop("has_payload", None)
        last = last and record.sound
        if not raw:
            if digest is not None:
                record.sound = False
                reason = "truncated" if last else "missing_payload"
                self._damage.add(reason, record.name or record.event, record.line, record.byte)
            return False, 0
        raw = _without_blank_end(raw)
        as_crlf = raw.endswith(b"\r\n")
        # What fits is found by the md5; where nothing fits, the last, likeliest reading stays.
        for crlf in (as_crlf, not as_crlf, as_crlf) if b"\r\n" in raw else (False,):
            record.payload = decode_payload_crlf(raw) if crlf else decode_payload(raw)
            if digest is None or payload_digest(record.payload) == digest:
                if crlf:
                    self._note_crlf(record.line, record.byte)
                return crlf, len(raw)
        record.sound = False
        excerpt = b"%s: %s" % ((record.name or record.event).encode(), record.payload or b"")
        self._damage.add(_payload_damage(record.payload or b"", last), excerpt, record.line, record.byte)
        return crlf, len(raw)

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
