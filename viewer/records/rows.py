"""Rows of log records, and the blocks that make up the readable view of a record.

A template draws the blocks, and JSON twins return them. Texts are unescaped, as in the log, so whoever draws them must
escape them. An `href` is an address of this viewer or an http(s) address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.text.highlight import Language


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
    """(event or artifact name, number of records) by which the list can be filtered, most frequent first."""


@dataclass(frozen=True)
class RecordDetail:
    row: RecordRow
    metadata: dict[str, Any]
    payload: str | None
    """Payload, cut to the requested length; None if there is none or the log cannot be read."""
    truncated: bool


@dataclass(frozen=True)
class Cell:
    """A short text, as a table cell, a fact's value or a list item."""

    text: str | None
    """None if unknown, which is drawn as a dash; `title` says why."""
    title: str = ""
    """Text on hover, such as the exact value of a rounded number."""
    href: str | None = None
    mono: bool = False


@dataclass(frozen=True)
class Fact:
    name: str
    value: Cell


@dataclass(frozen=True)
class FactsView:
    """A block of names and values."""

    facts: list[Fact]
    title: str = ""
    type: Literal["facts"] = "facts"


@dataclass(frozen=True)
class Column:
    name: str
    numeric: bool = False


@dataclass(frozen=True)
class TableView:
    columns: list[Column]
    rows: list[list[Cell]]
    """Rows with one cell per column."""
    title: str = ""
    left_out: int = 0
    """Number of further rows, which only the download contains."""
    type: Literal["table"] = "table"


@dataclass(frozen=True)
class TreeNode:
    label: str
    tag: str = ""
    """Kind of the node in a word."""
    code: str = ""
    notes: list[str] = field(default_factory=list)
    href: str | None = None
    children: list[TreeNode] = field(default_factory=list)


@dataclass(frozen=True)
class TreeView:
    """A tree with at most `MAX_DEPTH` levels."""

    nodes: list[TreeNode]
    title: str = ""
    type: Literal["tree"] = "tree"


@dataclass(frozen=True)
class StackView:
    """A call stack, outermost first."""

    frames: list[SourceLine]
    title: str = ""
    type: Literal["stack"] = "stack"


@dataclass(frozen=True)
class CodeSource:
    """A program line, and the lines of graph code that came from it."""

    source: SourceLine
    lines: list[int]
    """Lines of graph code, counted from 1."""


@dataclass(frozen=True)
class CodeView:
    text: str
    language: Language
    title: str = ""
    sources: list[CodeSource] = field(default_factory=list)
    type: Literal["code"] = "code"


@dataclass(frozen=True)
class TextView:
    """Prose or an error message, with its line breaks."""

    text: str
    title: str = ""
    type: Literal["text"] = "text"


@dataclass(frozen=True)
class ListView:
    items: list[Cell]
    title: str = ""
    type: Literal["list"] = "list"


@dataclass(frozen=True)
class NoteView:
    """A remark of the viewer about the record."""

    text: str
    warning: bool = False
    type: Literal["note"] = "note"


Block: TypeAlias = FactsView | TableView | TreeView | StackView | CodeView | TextView | ListView | NoteView


@dataclass(frozen=True)
class RecordView:
    """The readable view of a record."""

    title: str
    says: str
    """Sentence that explains what a record of this kind is."""
    blocks: list[Block]
    known: bool = True
    """False if the kind has no view, so that the record is shown raw."""


MAX_DEPTH = 60
MAX_ROWS = 2_000
LONGEST_TEXT = 400_000
"""Maximum number of characters of text or code that are drawn."""
