"""Rows of compiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepscope.viewer.graphs.rows import GraphRow, SourceLine
from stepscope.viewer.records.rows import RecordRow
from stepscope.viewer.steps.rows import Span


@dataclass(frozen=True)
class CompileRow:
    log: int
    compile_id: str
    frame: str | None
    file: str | None
    line: int | None
    function: str | None
    status: str
    attempts: int
    start_unix_ns: int | None
    duration_ns: int | None
    cache: str | None
    recompile_reason: str | None
    graph_break_reason: str | None
    failure: str | None
    artifacts: int
    """Number of records with this compile id that have a payload."""

    @property
    def shown_status(self) -> str:
        """Return the status to show, which tells graph breaks and recompiles apart from other successful compiles."""
        if self.status != "ok":
            return self.status
        if self.graph_break_reason:
            return "graph break"
        return "recompiled" if self.recompile_reason else "ok"


@dataclass(frozen=True)
class CompileDetail:
    row: CompileRow
    stack: list[SourceLine]
    metrics: dict[str, Any] | None
    graphs: list[GraphRow]
    records: list[RecordRow]
    """All records with this compile id except chromium events."""
    spans: list[Span]
    """Compile spans, with `start_ns` relative to the first span."""
