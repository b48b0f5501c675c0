"""Problems of a log: each is counted by reason, and the first ones of a reason are kept with their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from stepscope.viewer.errors import StepscopeError

PLACES_KEPT = 1000
TEXT_KEPT = 200

REASONS: Mapping[str, str] = {
    "not_a_record": "a line that is no record of a TORCH_TRACE log",
    "broken_header": "the JSON of a record cannot be read; its payload is kept",
    "wrong_md5": "the payload is not what was written: its md5 differs; the record is kept",
    "missing_payload": "the record announces a payload that is not there",
    "truncated": "the log ends in the middle of a record",
    "not_utf8": "bytes that are not UTF-8; they are shown as replacement characters",
    "nul_bytes": "NUL bytes in the text of a record",
    "broken_payload": "a payload does not have the form its record needs; the record is kept",
    "absurd_value": "a value that cannot be; it is taken as unknown",
    "mixed_ranks": "records of another rank in the same log",
    "mixed_processes": "records of another process in the same log",
    "crlf": "line ends were turned into CRLF on the way; payloads are read without them",
    "launcher_prefix": "a launcher wrote something before each line, as [rank0]:; it is read without that",
    "newer_format": "a log of a newer format than this stepscope reads; it is left out",
    "no_run_record": "a log of stepscope whose run record is damaged or missing; its other records are read",
    "empty_file": "a log without a single byte",
    "not_a_log": "a file with the name of a log that holds no record",
    "not_read": "a log that could not be read",
    "too_many_logs": "a folder with more logs than are read; the first, sorted by path, are",
    "unknown_layout": "values or lifetimes whose layout does not stand before them; kept where it comes later",
    "unknown_launch": "values, times or lifetimes of launches that are not in the log; they are left out",
    "broken_values": "values that do not fit their layout, or are there twice; they are left out",
    "broken_lifetimes": "lifetimes of storages that do not fit together, or are there twice; they are left out",
    "unknown_storage": "storages met before by a call that is not in the log; taken as met for the first time",
    "broken_ring": "a launch ring beside a log that cannot be read, or not all of it; the rest is kept",
    "not_understood": "a record, a row or a part of a log that could not be understood; everything else was read",
    "unknown_graph": "launches of a graph whose own record is missing; they are kept",
}


class RecordPlace(NamedTuple):
    """Where a record begins in its log."""

    line: int
    byte: int


class Damage:
    """Problems of one log."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: list[tuple[int | None, int | None, str, str]] = []
        """(line, byte, reason, text), at most `PLACES_KEPT` of each reason."""

    def add(self, reason: str, text: str | bytes, line: int | None = None, byte: int | None = None) -> None:
        """Count one problem of kind `reason` (a key of `REASONS`) at `line` (from 1) and `byte` (from 0)."""
        self.counts[reason] += 1
        if self.counts[reason] <= PLACES_KEPT:
            self.places.append((line, byte, reason, excerpt(text)))

    def once(self, reason: str, text: str, line: int | None = None, byte: int | None = None) -> None:
        """Like `add`, but only the first time: for a problem that concerns the whole log."""
        if not self.counts[reason]:
            self.add(reason, text, line, byte)

    @contextmanager
    def contained(self, what: str, line: int | None = None, byte: int | None = None) -> Iterator[None]:
        """Count any error that is raised inside, which then costs no more than `what`."""
        try:
            yield
        except StepscopeError:
            raise
        except Exception as error:
            self.add("not_understood", f"{what}: {type(error).__name__}: {error}", line, byte)


def excerpt(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text[: 4 * TEXT_KEPT].decode("utf-8", "replace")
    text = text.replace("\x00", "\\0")
    return text if len(text) <= TEXT_KEPT else text[: TEXT_KEPT - 1] + "…"
