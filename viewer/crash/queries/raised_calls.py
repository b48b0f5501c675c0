"""Queries the exceptions that left calls of generated code."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.crash.queries.process_ends import headline
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_RAISED = """
    SELECT r.log, r.time_unix_ns, c.graph, c.call, c.step, s.site, (SELECT max(l.launch) FROM launches l
           WHERE l.call = c.call) AS launch, r.returned, r.statement, r.type, r.text, r.frames
    FROM raised_calls r JOIN calls c ON c.log = r.log AND c.local_call = r.call
    LEFT JOIN sites s ON s.graph = c.graph AND s.local_site = r.site
    ORDER BY r.time_unix_ns, r.log, c.call
"""
_NODES = "SELECT log, compile_id, node, target, text, frame AS source FROM failed_nodes ORDER BY log, time_unix_ns"


@dataclass(frozen=True)
class RaisedCallRow:
    """An exception that left a call, with the ids of the index."""

    log: int
    time_unix_ns: int
    graph: int
    call: int
    step: int
    site: int | None
    """Site of the last launch that had begun; None if none had."""
    launch: int | None
    returned: bool
    """Whether that launch had returned."""
    statement: str | None
    type: str
    text: str
    frames: list[SourceLine]
    """Frames of the program, outermost first."""

    @property
    def title(self) -> str:
        """Return the type and the message in one line."""
        said = headline(self.text)
        return f"{self.type}: {said}" if said else self.type


@dataclass(frozen=True)
class FailedNodeRow:
    """The FX node at which a compile failed."""

    log: int
    compile_id: str | None
    node: str
    target: str
    text: str
    source: SourceLine | None


def raised_calls(trace: Trace) -> list[RaisedCallRow]:
    """Return the exceptions in order of time."""
    found = sql.named(trace, _RAISED, json=("frames",))
    return [RaisedCallRow(**{**row, "frames": [SourceLine(**one) for one in row["frames"] or ()]}) for row in found]


def failed_nodes(trace: Trace) -> list[FailedNodeRow]:
    """Return the nodes at which compiles failed, in order of time."""
    found = sql.named(trace, _NODES, json=("source",))
    return [FailedNodeRow(**{**row, "source": SourceLine(**row["source"]) if row["source"] else None}) for row in found]
