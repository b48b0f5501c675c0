"""Frozen rows about the records of logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RecordRow:
    record: int
    log: int
    line: int
    byte: int
    time_unix_ns: int | None
    source: str
    event: str
    name: str | None
    encoding: str | None
    compile_id: str | None
    attempt: int | None
    payload_bytes: int | None


@dataclass(frozen=True)
class RecordPage:
    """A page of a list of records."""

    rows: list[RecordRow]
    total: int
    offset: int
    limit: int
    kinds: list[tuple[str, int]]
    """(event or artifact name, how many), most first: what the list can be narrowed to."""


@dataclass(frozen=True)
class RecordDetail:
    row: RecordRow
    metadata: dict[str, Any]
    payload: str | None
    """At most `limit` characters."""
    truncated: bool
