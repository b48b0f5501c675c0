"""Frozen rows about the records of logs, and the blocks of which a readable view of a record is made.

The template of the views draws the blocks, and JSON twins give them out. Texts are as the log holds them: whoever draws
them escapes them. An `href` is an address of this viewer, or http(s).
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
    """(event or artifact name, how many), most first: what the list can be narrowed to."""


@dataclass(frozen=True)
class RecordDetail:
    row: RecordRow
    metadata: dict[str, Any]
    payload: str | None
    """At most `limit` characters."""
    truncated: bool


@dataclass(frozen=True)
class Cell:
    """A short text among others: a cell, a fact, an item of a list."""

    text: str | None
    """None: unknown; it is drawn as a dash, and `title` says why."""
    title: str = ""
    """What is said on hover: the exact number of a rounded one, the whole of a path."""
    href: str | None = None
    mono: bool = False


@dataclass(frozen=True)
class Fact:
    name: str
    value: Cell


@dataclass(frozen=True)
class FactsView:
    """Names and values."""

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
    """Each as long as `columns`."""
    title: str = ""
    left_out: int = 0
    """Rows that the record has and the view leaves to the download."""
    type: Literal["table"] = "table"


@dataclass(frozen=True)
class TreeNode:
    label: str
    tag: str = ""
    """What kind of node it is, in a word."""
    code: str = ""
    notes: list[str] = field(default_factory=list)
    href: str | None = None
    children: list[TreeNode] = field(default_factory=list)


@dataclass(frozen=True)
class TreeView:
    """At most `MAX_DEPTH` levels."""

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
    """A line of the user's program, and the lines of a graph's code that came from it."""

    source: SourceLine
    lines: list[int]
    """Counted from 1."""


@dataclass(frozen=True)
class CodeView:
    text: str
    language: Language
    title: str = ""
    sources: list[CodeSource] = field(default_factory=list)
    type: Literal["code"] = "code"


@dataclass(frozen=True)
class TextView:
    """Prose, or an error, with its line ends."""

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
    """A sentence about the record, by the viewer."""

    text: str
    warning: bool = False
    type: Literal["note"] = "note"


Block: TypeAlias = FactsView | TableView | TreeView | StackView | CodeView | TextView | ListView | NoteView


@dataclass(frozen=True)
class RecordView:
    """A record made readable."""

    title: str
    says: str
    """One sentence: what a record of this kind is."""
    blocks: list[Block]
    known: bool = True
    """False: no view knows this kind; it is shown raw."""


MAX_DEPTH = 60
MAX_ROWS = 2_000
LONGEST_TEXT = 400_000
"""Characters of a text or of code that are drawn."""
