"""A record as its view reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.records.rows import Block, CodeView
from stepscope.viewer.text.highlight import language_of


@dataclass(frozen=True)
class Sibling:
    """Another record of the same compile, which a view may speak of."""

    record: int
    event: str
    metadata: Any


@dataclass(frozen=True)
class Around:
    """What a view may need that the record itself does not hold."""

    strings: Mapping[int, str] = field(default_factory=dict)
    """File names by their number in the log's string table."""
    siblings: Sequence[Sibling] = ()
    """Records of the kinds in `RecordKind.related`, in the order of the log."""


@dataclass(frozen=True)
class LoggedRecord:
    event: str
    name: str | None
    encoding: str | None
    metadata: Any
    """What the event's name stands for in the header: mostly an object."""
    payload: str | None
    around: Around


def raw(record: LoggedRecord) -> list[Block]:
    """The payload as it is; nothing where there is none: the page shows the header anyway."""
    if record.payload is None:
        return []
    language = language_of(record.event, record.name, record.encoding, record.payload)
    return [CodeView(pretty_json(record.payload) if language == "json" else record.payload, language)]


def pretty_json(payload: str) -> str:
    """JSON with two blanks a level, bare NaN and infinities as they are; what is not JSON as it is."""
    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return payload
