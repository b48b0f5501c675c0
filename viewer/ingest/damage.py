"""Counts the problems of a log by reason, and keeps the places of the first ones of each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from stepscope.viewer.errors import StepscopeError

PLACES_KEPT = 1000
TEXT_KEPT = 200

REASONS: Mapping[str, str] = {
    "not_a_record": "a line is not a record of a TORCH_TRACE log",
    "broken_header": "the JSON of a record cannot be read; its payload is kept",
    "wrong_md5": "the md5 of a payload differs from that in its header; the record is kept",
    "missing_payload": "a record announces a payload that is missing",
    "truncated": "the log ends in the middle of a record",
    "not_utf8": "bytes are not UTF-8; they are shown as replacement characters",
    "nul_bytes": "the text of a record contains NUL bytes",
    "broken_payload": "a payload does not have the form of its kind of record; the record is kept",
    "absurd_value": "a value is impossible; it counts as unknown",
    "mixed_ranks": "a log contains records of another rank",
    "mixed_processes": "a log contains records of another process",
    "crlf": "line ends were changed to CRLF after the log was written; payloads are read without them",
    "launcher_prefix": "a launcher wrote a prefix such as [rank0]: before each line; the log is read without it",
    "newer_format": "a log has a newer format than this version of stepscope can read; it is left out",
    "no_run_record": "the run record of a stepscope log is damaged or missing; its other records are read",
    "empty_file": "a log is empty",
    "not_a_log": "a file has the name of a log and contains no record",
    "not_read": "a log could not be read",
    "too_many_logs": "a folder has too many logs; the first ones, sorted by path, are read",
    "unknown_layout": "values or lifetimes come before their layout; they are kept if the layout follows",
    "unknown_launch": "values, times or lifetimes belong to launches that are not in the log; they are left out",
    "broken_values": "values do not fit their layout, or appear twice; they are left out",
    "broken_lifetimes": "lifetimes of storages are inconsistent, or appear twice; they are left out",
    "unknown_storage": "a storage was used before by a call that is not in the log; it counts as new",
    "broken_ring": "the launch ring of a log cannot be read, or only in part; the rest is kept",
    "not_understood": "a record, a row or a part of a log could not be understood; everything else was read",
    "unknown_graph": "the record of a graph is missing; its launches are kept",
}


class RecordPlace(NamedTuple):
    """Line and byte at which a record begins in its log."""

    line: int
    byte: int


class Damage:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: list[tuple[int | None, int | None, str, str]] = []
        """(line, byte, reason, text) of at most `PLACES_KEPT` problems per reason."""

    def add(self, reason: str, text: str | bytes, line: int | None = None, byte: int | None = None) -> None:
        """Count one problem of kind `reason` (a key of `REASONS`) at `line` (from 1) and `byte` (from 0)."""
        self.counts[reason] += 1
        if self.counts[reason] <= PLACES_KEPT:
            self.places.append((line, byte, reason, excerpt(text)))

    def once(self, reason: str, text: str, line: int | None = None, byte: int | None = None) -> None:
        """Count a problem that concerns the whole log; only the first call has an effect."""
        if not self.counts[reason]:
            self.add(reason, text, line, byte)

    @contextmanager
    def contained(self, what: str) -> Iterator[None]:
        """Count any error raised in the block as a problem, so that it costs no more than `what`."""
        try:
            yield
        except StepscopeError:
            raise
        except Exception as error:
            self.add("not_understood", f"{what}: {type(error).__name__}: {error}")


def excerpt(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text[: 4 * TEXT_KEPT].decode("utf-8", "replace")
    text = text.replace("\x00", "\\0")
    return text if len(text) <= TEXT_KEPT else text[: TEXT_KEPT - 1] + "…"
