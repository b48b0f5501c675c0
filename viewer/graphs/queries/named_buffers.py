"""Finds buffers by the names that the program gives to the inputs and outputs of graphs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

SECONDS = 0.3
"""Maximum duration of the search in one request. The next one continues, as names that were read are kept."""
_GRAPHS = "SELECT graph, compile_id, phase FROM graphs WHERE graph IN (SELECT graph FROM sites) ORDER BY graph"
_USED = "SELECT DISTINCT buffer FROM arguments JOIN sites USING (site) WHERE graph = ? AND buffer IS NOT NULL"


@dataclass(frozen=True)
class NamedBuffer:
    name: str
    """Name in the program, such as ``self.layers.3.weight``."""
    buffer: str
    """Name in the generated code."""
    graph: int
    compile_id: str | None
    phase: str | None


def buffers_called(trace: Trace, text: str, most: int, seconds: float | None = None) -> tuple[list[NamedBuffer], int]:
    """Return buffers whose name in the program contains `text`, at most `most`, and the number of graphs not searched.

    Names that end with `text` come first, and of these the shortest. The case of letters does not matter."""
    deadline = time.monotonic() + (SECONDS if seconds is None else seconds)
    graphs, wanted, found = sql.rows(trace, _GRAPHS), text.lower(), []
    searched = 0
    for graph, compile_id, phase in graphs:
        if searched and time.monotonic() > deadline:
            break
        searched += 1
        found += [
            NamedBuffer(name, buffer, graph, compile_id, phase)
            for name, buffer in trace.once(_names, graph)
            if wanted in name.lower()
        ]
    found.sort(key=lambda one: (not one.name.lower().endswith(wanted), len(one.name), one.graph, one.buffer))
    return found[:most], len(graphs) - searched


def _names(trace: Trace, graph: int) -> list[tuple[str, str]]:
    """Return (name in the program, buffer) of the buffers of a graph that launches use."""
    used = {buffer for (buffer,) in sql.rows(trace, _USED, [graph])}
    known = program_names(trace, graph).items()
    return [(one.name, buffer) for buffer, one in known if one.name is not None and buffer in used]
