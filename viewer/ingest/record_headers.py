"""Reads header lines, and remembers what many of them share, so that it is read once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.tracer.schema.log_format import ENVELOPE_KEYS, HEADER
from stepscope.viewer.ingest import lenient_json
from stepscope.viewer.ingest.bounds import NUMBERS, whole_number
from stepscope.viewer.ingest.record_columns import (
    DIGEST_BYTES,
    FRACTION_END,
    TAIL_BYTES,
    RecordColumns,
    SharedColumns,
)
from stepscope.viewer.ingest.torch_trace.kinds import COMPILE_ERROR, NO_ID, UNREADABLE, is_of_a_compile

if TYPE_CHECKING:
    from stepscope.viewer.ingest.batch_reader import Records

NUMBER_DIGITS = 15
_MOST_REMEMBERED = 1000
_IDS = ("frame_id", "frame_compile_id", "attempt")
_FIRST_ID = b', "frame_id": '
_HAS_PAYLOAD = b', "has_payload": "'
_NUMBER = rb"(0|[1-9]\d{0,8})"
_ALL_IDS = re.compile(b"".join(b', "%s": %s' % (name.encode(), _NUMBER) for name in _IDS) + _HAS_PAYLOAD)


@dataclass(slots=True)
class RecordHeader:
    """The contents of a header line except its time. `event` is `UNREADABLE` if the JSON is broken."""

    pid: int | None
    source: str
    event: str = UNREADABLE
    value: Any = None
    """Value of the event in the JSON, mostly an object."""
    name: str | None = None
    """Name of an artifact or of another event that has a name."""
    envelope: dict[str, Any] = field(default_factory=dict)
    """All other keys of the JSON except the md5."""
    compile_id: str | None = None
    attempt: int | None = None
    rank: int | None = None

    def kind(self) -> SharedColumns:
        name, encoding, value = self.name, None, self.value
        if value and type(value) is dict:
            name = name or lenient_json.text(value.get("filename"))
            encoding = lenient_json.text(value.get("encoding"))
        columns = (self.pid, self.source, self.event, name, encoding, self.compile_id, self.attempt)
        return tuple.__new__(SharedColumns, columns)


_Origin = tuple[int | None, str]
Content = tuple[str, Any, str | None, dict[str, Any]]
KnownHeader = tuple[RecordHeader, int]
"""A header and the number of its combination of shared columns."""


class KnownHeaders:
    """Reads the headers of well-formed records of one log."""

    def __init__(self, columns: RecordColumns) -> None:
        self._columns = columns
        self._origins: dict[bytes, _Origin] = {}
        """Text between time stamp and JSON -> process and source."""
        self._contents: dict[bytes, tuple[_Origin, Content]] = {}
        """Text between time stamp and ids -> what it says."""
        self._headers: dict[bytes, KnownHeader] = {}
        """Text between time stamp and md5 -> header."""

    def of_records(self, piece: bytes, found: Records, payloads: Sequence[bytes | None]) -> list[KnownHeader | None]:
        """Return the header of each record, or None if anything about the record is unusual."""
        sound, has_payload, keys = found.are_sound(payloads), found.has_payload.tolist(), found.keys(piece)
        headers = list(map(self._headers.get, keys))
        starts, stops = found.start.tolist(), found.header_end.tolist()
        for i, header in enumerate(headers):
            if not sound[i]:
                headers[i] = None
            elif not has_payload[i]:
                headers[i] = self._without_payload(piece, starts[i], stops[i])
            elif header is None:
                headers[i] = self._headers.get(keys[i]) or self._with_key(keys[i], piece, starts[i], stops[i])
        return headers

    def _with_key(self, key: bytes, piece: bytes, start: int, stop: int) -> KnownHeader | None:
        """Read the header line from `start` to `stop`, which has `key` between its time stamp and md5."""
        at = key.rfind(_FIRST_ID)
        ids = _ids_in(key[at:]) if at >= 0 else None
        known = self._contents.get(key[:at]) if ids is not None else None
        if known is None or ids is None:
            digest = piece[stop - TAIL_BYTES : stop - TAIL_BYTES + DIGEST_BYTES].decode("latin-1")
            known = self._read(piece, start, stop, digest)
            if known is not None and ids is not None:
                _remember(self._contents, key[:at], known)
        if known is None:
            return None
        (pid, source), (event, value, name, envelope) = known
        header = self._numbered(pid, source, (event, value, name, {**envelope, **(ids or {})}))
        if header is not None and not value and key.endswith(_HAS_PAYLOAD):
            # Headers without a value are frequent and differ only in time and md5.
            _remember(self._headers, key, header)
        return header

    def _without_payload(self, piece: bytes, start: int, stop: int) -> KnownHeader | None:
        known = self._read(piece, start, stop, None)
        return None if known is None else self._numbered(*known[0], known[1])

    def _numbered(self, pid: int | None, source: str, content: Content) -> KnownHeader | None:
        ids = ids_of(content[3])
        if ids is None:
            return None
        header = header_of(pid, source, content, ids)
        return header, self._columns.kind(header.kind())

    def _read(self, piece: bytes, start: int, stop: int, digest: str | None) -> tuple[_Origin, Content] | None:
        """Return what a header line says. Return None if it is unusual or announces another payload."""
        json_start = piece.find(b"] ", start + FRACTION_END, stop) + 2
        origin = self._origin(piece, start, start + FRACTION_END, json_start, stop)
        if origin is None:
            return None
        try:
            content = content_of(orjson.loads(piece[json_start:stop]))
        except orjson.JSONDecodeError:
            return None
        if content is None or content[3].pop("has_payload", None) != digest:
            return None
        return origin, content

    def _origin(self, piece: bytes, start: int, fraction_end: int, json_start: int, stop: int) -> _Origin | None:
        """Return process and source from the text between time stamp and JSON, or None if it is unusual."""
        text = piece[fraction_end:json_start]
        origin = self._origins.get(text)
        if origin is None:
            match = HEADER.match(piece, start, stop)
            if match is None or match.start(11) != json_start or match.end(7) != fraction_end:
                return None
            parts = match.groups()
            if len(parts[7]) > NUMBER_DIGITS or len(self._origins) >= _MOST_REMEMBERED:
                return None
            origin = self._origins[text] = (int(parts[7]), source_of(parts))
        return origin


@lru_cache(_MOST_REMEMBERED)
def _ids_in(text: bytes) -> dict[str, int] | None:
    """Return the ids in the end of a header before its md5, or None if it has another form."""
    found = _ALL_IDS.fullmatch(text)
    return None if found is None else dict(zip(_IDS, map(int, found.groups()), strict=True))


def _remember(known: dict[bytes, Any], text: bytes, value: object) -> None:
    if len(known) >= _MOST_REMEMBERED:
        known.clear()
    known[text] = value


def source_of(header: Sequence[bytes]) -> str:
    return f"{header[8].decode('utf-8', 'replace')}:{header[9].decode()}"


def header_of(pid: int | None, source: str, content: Content, ids: tuple[str | None, int | None]) -> RecordHeader:
    event, _, name, envelope = content
    compile_id = ids[0] or (NO_ID if is_of_a_compile(event, name) else None)
    if event == "artifact" and name is not None and name.startswith(ARTIFACT_PREFIX) and name != COMPILE_ERROR:
        compile_id = None  # the record of its graph names the compile
    return RecordHeader(pid, source, *content, compile_id, ids[1], whole_number(envelope.get("rank")))


def content_of(header: Any) -> Content | None:
    """Return event, value, name and envelope of a header's JSON, or None if it names no event."""
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


def ids_of(envelope: Mapping[str, Any]) -> tuple[str | None, int | None] | None:
    """Return compile id and attempt, or None if one of their numbers is impossible."""
    get = envelope.get
    autograd, attempt = get("compiled_autograd_id"), get("attempt")
    frame, compile_number = get("frame_id"), get("frame_compile_id")
    for number in (frame, compile_number, attempt, autograd):
        if number is not None and not (type(number) is int and 0 <= number < NUMBERS.stop):
            return None
    inside = f"{frame}/{compile_number}" if frame is not None and compile_number is not None else None
    if autograd is not None:
        inside = f"!{autograd}/{inside}" if inside else f"!{autograd}"
    return inside, attempt
