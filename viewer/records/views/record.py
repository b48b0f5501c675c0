"""The input of a record's view, and the raw view of any record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.records.rows import Block, CodeView
from stepscope.viewer.text.highlight import language_of


@dataclass(frozen=True)
class Sibling:
    """Another record of the same compile, which a view may refer to."""

    record: int
    event: str
    metadata: Any


@dataclass(frozen=True)
class Around:
    """Data outside of the record that its view may need."""

    strings: Mapping[int, str] = field(default_factory=dict)
    """File names, keyed by their number in the log's string table."""
    siblings: Sequence[Sibling] = ()
    """Records of the kinds in `RecordKind.related`, in log order."""


@dataclass(frozen=True)
class LoggedRecord:
    event: str
    name: str | None
    encoding: str | None
    metadata: Any
    """Value of the event's key in the header, usually an object."""
    payload: str | None
    around: Around


def raw(record: LoggedRecord) -> list[Block]:
    """Show the payload as it is, or nothing if there is none, since the page shows the header anyway."""
    if record.payload is None:
        return []
    language = language_of(record.event, record.name, record.encoding, record.payload)
    return [CodeView(pretty_json(record.payload) if language == "json" else record.payload, language)]


def pretty_json(payload: str) -> str:
    """Return the JSON indented by two spaces, with NaN and infinities; return other text unchanged."""
    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return payload
