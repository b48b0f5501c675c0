"""Reads the bytes of one log into its records, in order, and counts every problem.

Well-formed records are read in batches; `scan` reads all others line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from stepscope.tracer.schema.log_format import (
    HEADER,
    decode_payload,
    decode_payload_crlf,
    payload_digest,
    scan,
)
from stepscope.viewer.ingest import lenient_json
from stepscope.viewer.ingest.clock import LogClock
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.log_bytes import LogBytes, pieces
from stepscope.viewer.ingest.record_columns import UNKNOWN, RecordColumns
from stepscope.viewer.ingest.record_headers import (
    NUMBER_DIGITS,
    KnownHeader,
    KnownHeaders,
    RecordHeader,
    content_of,
    header_of,
    ids_of,
    source_of,
)

_CRLF = "the log's line ends are CRLF"


class LogRecord(NamedTuple):
    """One record of a log."""

    record: int
    """Id of the record in the index."""
    header: RecordHeader
    line: int
    byte: int
    time_ns: int | None
    payload: bytes | None
    sound: bool = True
    """Whether header and payload are as they were written."""

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(self.line, self.byte)

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


_log_record: Callable[[Iterable[Any]], LogRecord] = partial(tuple.__new__, LogRecord)
"""`LogRecord._make` without the check of the number of fields."""


def read_records(
    data: bytes | LogBytes,
    damage: Damage,
    clock: LogClock,
    columns: RecordColumns,
    first: int,
    *,
    at_once: bool,
    passed: Callable[[int], None] = lambda byte: None,
) -> Iterator[LogRecord]:
    """Read the records of a log in order. They become rows of `columns`, with ids from `first` on; lines outside of
    records are counted in `damage`. No `data` makes it raise.

    `passed` is called with the number of bytes that were read. If `at_once` is true, numpy finds well-formed records,
    which is worth its import for a log of some megabytes.
    """
    reader = _Reader(len(data), damage, clock, columns, first, passed)
    return reader.at_once(data) if at_once else reader.by_lines(data)


class _Reader:
    def __init__(
        self, size: int, damage: Damage, clock: LogClock, columns: RecordColumns, first: int,
        passed: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._passed = passed
        self._size, self._damage, self._clock, self._columns, self._first = size, damage, clock, columns, first
        self._headers = KnownHeaders(columns)
        self._line = 1
        """Line at which the current piece begins."""

    def by_lines(self, data: bytes | LogBytes) -> Iterator[LogRecord]:
        for byte, piece in pieces(data):
            yield from self._by_lines(piece, self._line, byte)
            self._line += piece.count(b"\n")

    def at_once(self, data: bytes | LogBytes) -> Iterator[LogRecord]:
        for byte, piece in pieces(data):
            yield from self._at_once(piece, byte)
            self._passed(byte + len(piece))

    def _at_once(self, piece: bytes, byte: int) -> Iterator[LogRecord]:
        from stepscope.viewer.ingest.batch_reader import records_of

        found = records_of(piece, self._line, byte)
        payloads = found.payloads()
        headers = self._headers.of_records(piece, found, payloads)
        times = found.time_ns(self._clock.second_ns)
        columns = {**found.columns, "time_unix_ns": times}
        lines, starts, ends = columns["line"].tolist(), found.start.tolist(), found.end.tolist()
        unusual = [i for i, time_ns in enumerate(times.tolist()) if time_ns == UNKNOWN or headers[i] is None]
        done = 0
        for i in [*unusual, len(headers)]:
            if done < i:
                yield from self._usual(headers, payloads, columns, slice(done, i))
            if i < len(headers):
                yield from self._by_lines(piece[starts[i] : ends[i]], lines[i], byte + starts[i])
            done = i + 1
        self._line += found.line_breaks

    def _usual(
        self,
        headers: Sequence[KnownHeader | None],
        payloads: Sequence[bytes | None],
        columns: Mapping[str, Any],
        part: slice,
    ) -> Iterator[LogRecord]:
        """Yield a range of well-formed records and add their rows."""
        some = [found for found in headers[part] if found is not None]
        of_part = {name: column[part] for name, column in columns.items()}
        first = self._first + len(self._columns)
        self._columns.extend(of_part, [kind for _, kind in some])
        if not self._damage.counts["crlf"] and of_part["crlf"].any():
            at = of_part["crlf"].argmax()
            self._damage.once("crlf", _CRLF, int(of_part["line"][at]), int(of_part["byte"][at]))
        each = zip(
            range(first, first + len(some)), [header for header, _ in some], of_part["line"].tolist(),
            of_part["byte"].tolist(), of_part["time_unix_ns"].tolist(), payloads[part], [True] * len(some), strict=True,
        )  # fmt: skip
        yield from map(_log_record, each)

    def _by_lines(self, data: bytes, first_line: int, byte: int) -> Iterator[LogRecord]:
        """Yield the records of a part of the log that begins at `byte`."""
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
            pid = int(parts[7]) if len(parts[7]) <= NUMBER_DIGITS else None
            time_ns = self._clock.time_ns(parts[1:7])
            if time_ns is None or pid is None:
                self._damage.add("absurd_value", header_line[: match.start(11)], line, start)
            torn = last and near.payload_start == near.end
            bare, place = RecordHeader(pid, source_of(parts)), RecordPlace(line, start)
            header = self._read_header(bare, parts[10], torn, place)
            raw = _without_blank_end(data[near.payload_start : near.end])
            payload, crlf, sound = self._read_payload(header, header is not bare, raw, last, place)
            record = self._first + len(self._columns)
            length = None if payload is None else len(raw)
            self._columns.add(
                self._columns.kind(header.kind()), line, start, near.header_end - near.start,
                None if payload is None else near.payload_start + byte, length, time_ns, crlf,
            )  # fmt: skip
            yield LogRecord(record, header, line, start, time_ns, payload, sound)

    def _read_header(self, header: RecordHeader, text: bytes, torn: bool, place: RecordPlace) -> RecordHeader:
        try:
            content = content_of(lenient_json.loads(text))
        except ValueError:
            content = None
        if content is None:
            self._damage.add("truncated" if torn else "broken_header", text, *place)
            return header
        if not _is_utf8(text):
            self._damage.add("not_utf8", text, *place)
        ids = ids_of(content[3])
        if ids is None:
            self._damage.add("absurd_value", text, *place)
        return header_of(header.pid, header.source, content, ids or (None, None))

    def _read_payload(
        self, header: RecordHeader, is_readable: bool, raw: bytes, last: bool, place: RecordPlace
    ) -> tuple[bytes | None, bool, bool]:
        """Return the payload with the lines `raw`, whether they end in CRLF, and whether the record is undamaged."""
        digest = header.envelope.pop("has_payload", None)
        last = last and is_readable
        if not raw:
            if digest is not None:
                self._damage.add("truncated" if last else "missing_payload", header.name or header.event, *place)
            return None, False, is_readable and digest is None
        as_crlf = raw.endswith(b"\r\n")
        # The md5 tells which reading is right; if none is, the last, likeliest one stays.
        for crlf in (as_crlf, not as_crlf, as_crlf) if b"\r\n" in raw else (False,):
            payload = decode_payload_crlf(raw) if crlf else decode_payload(raw)
            if digest is None or payload_digest(payload) == digest:
                if crlf:
                    self._damage.once("crlf", _CRLF, *place)
                return payload, crlf, is_readable
        excerpt = b"%s: %s" % ((header.name or header.event).encode(), payload)
        self._damage.add(_payload_damage(payload, last), excerpt, *place)
        return payload, crlf, False


def _without_blank_end(raw: bytes) -> bytes:
    """Remove blank lines after tabbed lines; an empty last line of the payload itself has a tab."""
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
