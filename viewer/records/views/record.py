"""From a record to its view: the one way in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stepscope.viewer.records.views.blocks import LONGEST_TEXT, Block, CodeView, NoteView, RecordView, TextView
from stepscope.viewer.records.views.shape import Odd
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
    """Records of the kinds in `Kind.related`, in the order of the log."""


@dataclass(frozen=True)
class Record:
    event: str
    name: str | None
    encoding: str | None
    metadata: Any
    """What the event's name stands for in the header: mostly an object."""
    payload: str | None
    around: Around


@dataclass(frozen=True)
class Kind:
    title: str
    says: str
    read: Callable[[Record], list[Block]]
    related: tuple[str, ...] = ()
    """Events of the same compile whose metadata `read` uses."""
    names_files: bool = False
    """Its payload names files by their numbers in the string table."""
    known: bool = True


def view_of(
    event: str,
    name: str | None,
    encoding: str | None,
    metadata: Any,
    payload: str | None,
    around: Around | None = None,
) -> RecordView:
    """A record made readable. Never raises: what does not have the form of its kind is shown raw, with a sentence."""
    from stepscope.viewer.records.views.kinds import kind_of

    kind = kind_of(event, name)
    record = Record(event, name, encoding, metadata, payload, around or Around())
    try:
        blocks = kind.read(record)
    except Odd as odd:
        said = f"This record does not have the form that PyTorch gives its kind: {odd}. It is shown as it is."
        blocks = [NoteView(said, warning=True), *raw(record)]
    return RecordView(kind.title, kind.says, [part for block in blocks for part in _bounded(block)], kind.known)


def _bounded(block: Block) -> list[Block]:
    """A block that a browser can draw, and a note where something of it was cut off."""
    if not isinstance(block, CodeView | TextView) or len(block.text) <= LONGEST_TEXT:
        return [block]
    return [replace(block, text=block.text[:LONGEST_TEXT]), NoteView("Cut here; the download holds all of it.", True)]


def raw(record: Record) -> list[Block]:
    """The payload as it is; nothing where there is none: the page shows the header anyway."""
    if record.payload is None:
        return []
    language = language_of(record.event, record.name, record.encoding, record.payload)
    return [CodeView(pretty_json(record.payload) if language == "json" else record.payload, language)]


def pretty_json(payload: str) -> str:
    """JSON with two blanks a level, bare NaN and infinities as they are; what is not JSON as it is."""
    import json

    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return payload
