"""Frozen rows about compiles."""

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
    """Records with this compile id that have a payload."""

    @property
    def shown_status(self) -> str:
        """What its sign is for: an ok compile can be a recompile or end in a graph break."""
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
    """Everything logged under this compile id except chromium events."""
    spans: list[Span]
    """Compile spans; `start_ns` relative to the first one."""
