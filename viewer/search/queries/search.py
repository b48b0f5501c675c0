"""Searches headers and payloads, piece by piece in the logs: the index only knows the record at each position."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import duckdb

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_HITS = 100
UNKNOWN = "–"
PIECE_SECONDS = 0.15
"""Maximum duration of the search in one request, which then returns how far it came."""
_TEXT_BLOCK, _REGEX_BLOCK = 1 << 22, 1 << 20
_BEFORE, _AFTER = 120, 200
"""Maximum number of bytes of a line that are shown around a match."""

Matches: TypeAlias = Callable[[bytes], Iterator[tuple[int, int]]]
"""Bytes -> (start, end) of the first match in each line that has one, in order."""


@dataclass(frozen=True)
class SearchHit:
    """A line with a match, and the text around the first one."""

    record: int | None
    """None if the line belongs to no record."""
    log: int
    byte: int
    """Position of the match, from the start of the log."""
    event: str | None
    name: str | None
    compile_id: str | None
    line: int | None
    """Line of the payload, from 1; None if the match is in the header or in no record."""
    before: str
    match: str
    after: str


@dataclass(frozen=True)
class SearchPiece:
    """Hits from one position on, in the order of the logs."""

    hits: list[SearchHit]
    next_offset: int | None
    """Position at which to continue; None at the end."""
    looked_bytes: int
    """Bytes searched from the start of the logs, including earlier pieces."""
    total_bytes: int


class _Part(NamedTuple):
    log: int
    byte: int
    data: bytes


class _Place(NamedTuple):
    log: int
    byte: int
    before: bytes
    match: bytes
    after: bytes
    line_end: int


class _Owner(NamedTuple):
    record: int
    byte: int
    payload_byte: int | None
    ends: int
    event: str
    name: str | None
    compile_id: str | None
    place: int


def search(
    trace: Trace,
    text: str,
    *,
    regex: bool = False,
    case: bool = False,
    log: int | None = None,
    kind: str | None = None,
    compile_id: str | None = None,
    offset: int = 0,
    limit: int = MOST_HITS,
    seconds: float | None = None,
) -> SearchPiece:
    """Return the next lines that contain `text`, at most `limit`, found in about `seconds` (`PIECE_SECONDS`).

    `offset` counts bytes from the start of the first log (of `log` if it is given). Without `case`, ASCII letters match
    in upper and lower case. A regular expression is applied line by line. Lines longer than a few megabytes are
    searched piece by piece. Raises StepscopeError if the regular expression is invalid.
    """
    deadline = time.monotonic() + (PIECE_SECONDS if seconds is None else seconds)
    starts, total = _starts(trace, log)
    matches = _expression(trace, text, case) if regex else _plain(text, case)
    spans = _spans_of_logs(trace, starts, offset) if kind is None and compile_id is None else _spans_of_records(
        trace, starts, offset, kind, compile_id
    )  # fmt: skip
    places: list[_Place] = []
    for parts in _blocks(trace, spans, _REGEX_BLOCK if regex else _TEXT_BLOCK):
        for place in _places(parts, matches):
            places.append(place)
            if len(places) == limit:
                return _piece(trace, places, starts[place.log] + place.line_end, total)
        last = parts[-1]
        at = starts[last.log] + last.byte + len(last.data)
        if at < total and time.monotonic() > deadline:
            return _piece(trace, places, at, total)
    return _piece(trace, places, None, total)


def search_text(hit: SearchHit) -> str:
    """Return a hit in one line, without control characters, which could control a terminal."""
    kind = hit.name if hit.event == "artifact" and hit.name else hit.event
    where = "header" if hit.line is None else f"line {hit.line}"
    record = "no record" if hit.record is None else f"record {hit.record} {kind} {hit.compile_id or UNKNOWN} {where}"
    text = f"log {hit.log} {record}: {hit.before}{hit.match}{hit.after}"
    return "".join(character if character.isprintable() else " " for character in text)


def _piece(trace: Trace, places: list[_Place], at: int | None, total: int) -> SearchPiece:
    following = at if at is not None and at < total else None
    return SearchPiece(_hits(trace, places), following, total if following is None else following, total)


def _starts(trace: Trace, log: int | None) -> tuple[dict[int, int], int]:
    """Return log -> size of the logs before it, and the total size."""
    sizes = {number: source.size for number, source in enumerate(trace.logs) if log is None or number == log}
    ends = list(accumulate(sizes.values(), initial=0))
    return dict(zip(sizes, ends, strict=False)), ends[-1]


def _spans_of_logs(trace: Trace, starts: dict[int, int], offset: int) -> Iterator[tuple[int, int, int]]:
    """Yield (log, first byte, end) of each log."""
    for log, start in starts.items():
        size = trace.logs[log].size
        if start + size > offset:
            yield log, max(0, offset - start), size


def _spans_of_records(
    trace: Trace, starts: dict[int, int], offset: int, kind: str | None, compile_id: str | None
) -> Iterator[tuple[int, int, int]]:
    """Yield (log, first byte, end) of records of a kind, of a compile, or both."""
    end = "coalesce(payload_byte + payload_bytes, byte + header_bytes + 1)"
    for log, start in starts.items():
        cursor = trace.cursor().execute(
            f"SELECT byte, {end} FROM records WHERE log = $log AND {end} > $offset"
            " AND ($kind IS NULL OR event = $kind OR (event = 'artifact' AND name = $kind))"
            " AND ($compile_id IS NULL OR compile_id = $compile_id) ORDER BY byte",
            {"log": log, "offset": offset - start, "kind": kind, "compile_id": compile_id},
        )
        while rows := cursor.fetchmany(2_000):
            for first, last in rows:
                yield log, max(first, offset - start), min(last, trace.logs[log].size)


def _blocks(trace: Trace, spans: Iterable[tuple[int, int, int]], most: int) -> Iterator[list[_Part]]:
    """Yield what is searched at once: about `most` bytes, of one span or of several small ones."""
    parts: list[_Part] = []
    size = 0
    for log, first, end in spans:
        for part in _parts(trace, log, first, end, most):
            if parts and size + len(part.data) > most:
                yield parts
                parts, size = [], 0
            parts.append(part)
            size += len(part.data)
    if parts:
        yield parts


def _parts(trace: Trace, log: int, first: int, end: int, most: int) -> Iterator[_Part]:
    """Split a span into parts of at most `most` bytes, if possible at the end of a line."""
    while first < end:
        data = trace.log_bytes(log, first, min(most, end - first))
        if not data:
            return  # the log has shrunk since it was indexed
        if first + len(data) < end and (cut := data.rfind(b"\n") + 1):
            data = data[:cut]
        yield _Part(log, first, data)
        first += len(data)


def _places(parts: list[_Part], matches: Matches) -> Iterator[_Place]:
    """Yield the matches in `parts` with their positions in the log."""
    data = parts[0].data if len(parts) == 1 else b"\n".join(part.data for part in parts)
    starts = list(accumulate((len(part.data) + 1 for part in parts), initial=0))
    index = 0
    for start, end in matches(data):
        while starts[index + 1] <= start:
            index += 1
        part = parts[index]
        line = data.rfind(b"\n", 0, start) + 1
        line_end = data.find(b"\n", end)
        line_end = len(data) if line_end < 0 else line_end
        line += data[line : line + 1] == b"\t"
        first, last = max(line, start - _BEFORE), min(line_end, end + _AFTER)
        before = (b"..." if first > line else b"") + data[first:start]
        after = data[end:last].rstrip(b"\r") + (b"..." if last < line_end else b"")
        here = part.byte - starts[index]
        at_end = min(line_end + 1 + here, part.byte + len(part.data))
        yield _Place(part.log, start + here, before, data[start : min(end, start + _AFTER)], after, at_end)


def _plain(text: str, case: bool) -> Matches:
    needle = text.encode("utf-8", "replace")

    def matches(data: bytes) -> Iterator[tuple[int, int]]:
        wanted, inside = (needle, data) if case else (needle.lower(), data.lower())
        at = inside.find(wanted)
        while at >= 0:
            yield at, at + len(needle)
            line_end = inside.find(b"\n", at)
            at = -1 if line_end < 0 else inside.find(wanted, line_end)

    return matches


def _expression(trace: Trace, text: str, case: bool) -> Matches:
    """Match a regular expression. DuckDB does it in linear time for any expression, while other requests continue."""
    pattern = text if case else f"(?i){text}"
    _compiled(trace, pattern)
    anchored = r"\A" in text or r"\z" in text

    def matches(data: bytes) -> Iterator[tuple[int, int]]:
        shown = data.replace(b"\r\n", b"\n").replace(b"\n\t", b"\n").removeprefix(b"\t").decode("utf-8", "replace")
        if not anchored and not sql.number(trace, "SELECT regexp_matches(?, ?)", [shown, f"(?ms){pattern}"]):
            return
        lines = data.split(b"\n")
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        for number, found in sql.rows(trace, _LINES, {"text": shown, "pattern": pattern}):
            match = found.encode()
            at = max(0, lines[number - 1].find(match))
            start = starts[number - 1] + at
            yield start, min(start + len(match), starts[number] - 1)

    return matches


_LINES = """
    WITH split AS (SELECT string_split($text, chr(10)) AS lines),
         numbered AS (SELECT unnest(lines) AS line, generate_subscripts(lines, 1) AS number FROM split)
    SELECT number, regexp_extract(line, $pattern) FROM numbered WHERE regexp_matches(line, $pattern) ORDER BY number
"""


def _compiled(trace: Trace, pattern: str) -> None:
    try:
        sql.number(trace, "SELECT regexp_matches('', ?)", [pattern])
    except duckdb.Error as error:
        reason = str(error).splitlines()[0].rpartition("Error: ")[2]
        raise StepscopeError(f"This is not a valid regular expression: {reason}.") from None


def _hits(trace: Trace, places: Sequence[_Place]) -> list[SearchHit]:
    by_log: dict[int, list[_Place]] = {}
    for place in places:
        by_log.setdefault(place.log, []).append(place)
    found = []
    for log, here in by_log.items():
        owners, lines = _owners(trace, log, [place.byte for place in here]), _Lines(trace, log)
        found += [_hit(place, owner, lines) for place, owner in zip(here, owners, strict=True)]
    return found


def _hit(place: _Place, owner: _Owner | None, lines: _Lines) -> SearchHit:
    before, match, after = (part.decode("utf-8", "replace") for part in place[2:5])
    record = event = name = compile_id = line = None
    if owner is not None:
        record, event, name, compile_id = owner.record, owner.event, owner.name, owner.compile_id
        if owner.payload_byte is not None and place.byte >= owner.payload_byte:
            line = lines.of(owner.payload_byte, place.byte)
    return SearchHit(record, place.log, place.byte, event, name, compile_id, line, before, match, after)


_OWNERS = """
    WITH asked AS (SELECT unnest($places::BIGINT[]) AS place),
         near AS (
            SELECT record, byte, payload_byte,
                   coalesce(payload_byte + payload_bytes, byte + header_bytes + 2) AS ends, event, name, compile_id
            FROM records WHERE log = $log AND byte <= list_max($places::BIGINT[])
            AND byte >= (SELECT coalesce(max(byte), 0) FROM records
                         WHERE log = $log AND byte <= list_min($places::BIGINT[]))
         )
    SELECT near.*, place FROM asked ASOF LEFT JOIN near ON place >= byte ORDER BY place
"""


def _owners(trace: Trace, log: int, places: list[int]) -> list[_Owner | None]:
    """Return the record at each position, or None. The positions ascend."""
    found = sql.records(_Owner, trace, _OWNERS, {"places": places, "log": log})
    return [row if row.record is not None and row.place < row.ends else None for row in found]


class _Lines:
    """Counts the lines of payloads for ascending positions, so that it reads no byte twice."""

    def __init__(self, trace: Trace, log: int) -> None:
        self._trace, self._log = trace, log
        self._payload, self._at, self._line = -1, 0, 1

    def of(self, payload: int, place: int) -> int:
        if payload != self._payload:
            self._payload, self._at, self._line = payload, payload, 1
        while self._at < place:
            data = self._trace.log_bytes(self._log, self._at, min(_TEXT_BLOCK, place - self._at))
            if not data:
                break
            self._line += data.count(b"\n")
            self._at += len(data)
        return self._line
