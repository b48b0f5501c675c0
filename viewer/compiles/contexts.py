"""What the pages of compiles know."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.compiles.queries.details import CacheLookup, FailedGuard, ShapeFact
from stepscope.viewer.compiles.queries.provenance_panes import ProvenancePanes
from stepscope.viewer.compiles.queries.stack_trie import StackTrie
from stepscope.viewer.compiles.queries.stages import Attempt, Stage, StageGraph
from stepscope.viewer.compiles.rows import CompileDetail, CompileRow
from stepscope.viewer.records.rows import RecordView


@dataclass(frozen=True)
class CompilesPage:
    compiles: list[CompileRow]
    """`limit` of those that match, from `offset` on."""
    output_codes: list[int]
    """Of each of them: wrappers that Inductor wrote, as far as the log holds them."""
    total: int
    """Compiles that match."""
    all_compiles: int
    statuses: list[tuple[str, int]]
    """Of all that match but for their status, most first."""
    status: str | None
    text: str | None
    log: int | None
    sort: str
    reverse: bool
    offset: int
    limit: int
    trie: StackTrie
    """Of all that match."""


@dataclass(frozen=True)
class StageShown:
    stage: str
    graph: StageGraph
    view: RecordView


@dataclass(frozen=True)
class GuardLine:
    """A node of the tree of guards."""

    depth: int
    name: str
    """``TENSOR_MATCH``, ``DictGuardManager``."""
    source: str
    """Of a manager: the expression, ``L['x']``; empty for a guard."""
    type: str
    code: str
    user_code: str
    place: str
    failed: list[FailedGuard]
    """Later compiles that were made because this guard did not hold."""
    is_open: bool
    """A guard that failed is below it."""


@dataclass(frozen=True)
class Guards:
    record: int
    attempt: int
    guards: int
    latency: str | None
    lines: list[GuardLine]
    left_out: int
    """Nodes that only the record's own page shows."""


@dataclass(frozen=True)
class ProvenanceGraph:
    """A graph that Inductor compiled."""

    number: int
    label: str
    aot_id: str | None
    attempt: int


@dataclass(frozen=True)
class CompilePage:
    detail: CompileDetail
    attempts: list[Attempt]
    attempt: int | None
    """The one that is looked at; None: all."""
    attempt_of: dict[int, int]
    """Record -> its attempt."""
    stages: list[Stage]
    shown: StageShown | None
    """The graph of the chosen stage; None: it has none."""
    stage: str
    guards: Guards | None
    failed: list[FailedGuard]
    """Guards of this compile that failed later, and the one whose failure led to it."""
    shapes: list[ShapeFact]
    shapes_total: int
    lookups: list[CacheLookup]
    provenance: list[ProvenanceGraph]
    related: list[tuple[str, str]]
    """(name, path) of pages about the whole run that have records of this compile."""
    previous: tuple[str, str | None] | None
    """Compile id and function of the compile that began before."""
    next: tuple[str, str | None] | None


@dataclass(frozen=True)
class ProvenancePage:
    row: CompileRow
    graphs: list[ProvenanceGraph]
    graph: int | None
    panes: ProvenancePanes | None
    """None: Inductor compiled no graph here."""
    line: str | None
    """The chosen line: ``code-12``, ``pre-3``, ``post-7``."""
