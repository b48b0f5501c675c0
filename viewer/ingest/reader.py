"""Bytes of one log -> its records, in order, with everything that was wrong on the way."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tracer.log_format import (
    ENVELOPE_KEYS,
    HEADER,
    RawRecord,
    decode_payload,
    decode_payload_crlf,
    payload_digest,
    scan,
)
from viewer.ingest import lenient_json
from viewer.ingest.clock import Clock
from viewer.ingest.damage import Damage

UNREADABLE = "unreadable"
_NUMBER_DIGITS = 18


@dataclass(slots=True)
class LogRecord:
    """One record of a log. `event` is `UNREADABLE` where the JSON is broken."""

    place: RawRecord
    event: str
    value: Any
    """What the event's name stands for in the JSON: mostly an object."""
    envelope: dict[str, Any] = field(default_factory=dict)
    payload: bytes | None = None
    payload_bytes: int = 0
    """Length of its tabbed lines in the log."""
    crlf: bool = False
    sound: bool = True
    """Header and payload are as they were written."""
    time_ns: int | None = None
    pid: int | None = None
    source: str = ""
    compile_id: str | None = None
    attempt: int | None = None
    record: int = -1
    """Its id in the index."""

    @property
    def name(self) -> str | None:
        return lenient_json.text(self.value.get("name")) if isinstance(self.value, dict) else None


def read_records(data: bytes | mmap.mmap, damage: Damage, clock: Clock) -> Iterator[LogRecord]:
    """Records of a log in order; lines that are none are counted in `damage`. Never raises for what `data` holds."""
    size = len(data)
    for place in scan(data):
        match = HEADER.match(data, place.start, place.header_end)
        last = place.end == size
        if match is None:
            _count_foreign(data, place, last, damage)
            continue
        parts = match.groups()
        record = LogRecord(place, UNREADABLE, None)
        record.source = f"{parts[8].decode('utf-8', 'replace')}:{parts[9].decode()}"
        record.time_ns = clock.time_ns(parts[1:7])
        record.pid = int(parts[7]) if len(parts[7]) <= _NUMBER_DIGITS else None
        if record.time_ns is None or record.pid is None:
            damage.add("absurd_value", data[place.start : match.start(11)], place.line, place.start)
        header_ok = _read_header(record, parts[10], last, damage)
        _read_payload(record, data, last and header_ok, damage)
        yield record


def _count_foreign(data: bytes | mmap.mmap, place: RawRecord, last: bool, damage: Damage) -> None:
    line = data[place.start : place.header_end]
    torn = last and data[place.end - 1 : place.end] != b"\n" and line[:1] in (b"V", b"\t")
    damage.add("truncated" if torn else "not_a_record", line, place.line, place.start)


def _read_header(record: LogRecord, text: bytes, last: bool, damage: Damage) -> bool:
    place = record.place
    try:
        header = lenient_json.loads(text)
        event = next(key for key in header if key not in ENVELOPE_KEYS) if isinstance(header, dict) else None
    except (ValueError, StopIteration):
        event = None
    if event is None:
        torn = last and place.payload_start == place.end
        damage.add("truncated" if torn else "broken_header", text, place.line, place.start)
        record.sound = False
        return False
    if not text.isascii() and "\ufffd" in text.decode("utf-8", "replace"):
        damage.add("not_utf8", text, place.line, place.start)
    if b"\x00" in text:
        damage.add("nul_bytes", text, place.line, place.start)
    record.event, record.value, record.envelope = event, header.pop(event), header
    _read_compile_id(record, text, damage)
    return True


def _read_compile_id(record: LogRecord, text: bytes, damage: Damage) -> None:
    envelope = record.envelope
    ids = [envelope.get(key) for key in ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")]
    if not all(number is None or (type(number) is int and 0 <= number < 2**63) for number in ids):
        damage.add("absurd_value", text, record.place.line, record.place.start)
        return
    autograd, frame, compile_number, record.attempt = ids
    inside = f"{frame}/{compile_number}" if frame is not None and compile_number is not None else None
    if autograd is None:
        record.compile_id = inside
    else:
        record.compile_id = f"!{autograd}/{inside}" if inside else f"!{autograd}"


def _read_payload(record: LogRecord, data: bytes | mmap.mmap, last: bool, damage: Damage) -> None:
    place, digest = record.place, record.envelope.get("has_payload")
    if place.payload_start == place.end:
        if digest is not None:
            record.sound = False
            reason = "truncated" if last else "missing_payload"
            damage.add(reason, record.name or record.event, place.line, place.start)
        return
    raw = _without_blank_end(data[place.payload_start : place.end])
    record.payload_bytes = len(raw)
    as_crlf = raw.endswith(b"\r\n")
    # What fits is found by the md5; where nothing fits, the last, likeliest reading stays.
    for record.crlf in (as_crlf, not as_crlf, as_crlf) if b"\r\n" in raw else (False,):
        record.payload = decode_payload_crlf(raw) if record.crlf else decode_payload(raw)
        if digest is None or payload_digest(record.payload) == digest:
            if record.crlf:
                damage.once("crlf", "the log's line ends are CRLF", place.line, place.start)
            return
    record.sound = False
    excerpt = b"%s: %s" % ((record.name or record.event).encode(), record.payload or b"")
    damage.add(_payload_damage(record.payload or b"", last), excerpt, place.line, place.start)


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
    try:
        payload.decode()
    except UnicodeDecodeError:
        return "not_utf8"
    return "wrong_md5"
