"""Queries from which lines the program calls graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename

_PLACES = """
    SELECT g.graph, g.phase, any_value(f.frame), arg_min(s.file, s.time_unix_ns), arg_min(s.line, s.time_unix_ns),
           arg_min(s.function, s.time_unix_ns), arg_min(s.code, s.time_unix_ns),
           arg_min(s.after_line, s.time_unix_ns), arg_min(s.lines_between, s.time_unix_ns)
    FROM graphs g LEFT JOIN compiles f ON f.log = g.log AND f.compile_id = g.compile_id
    LEFT JOIN call_sites s ON s.log = g.log AND s.graph = g.local_graph
    WHERE list_contains(?, g.graph) GROUP BY g.graph, g.phase
"""


class GraphPlace(NamedTuple):
    """Where the program calls a graph."""

    phase: str | None
    frame: str | None
    """The compiled function."""
    source: SourceLine | None
    """The first line of the program that was seen to call it."""
    after_line: int | None
    """The line of the call before, if that came from the same function not far above."""
    lines_between: tuple[str, ...]
    """The lines of the program between the two."""

    @property
    def text(self) -> str:
        """Return text like ``the compiled call at train.py:30`` or ``the backward pass at train.py:31``."""
        what = "the backward pass" if self.phase == "backward" else "the compiled call"
        if self.source is not None:
            return f"{what} at {basename(self.source.file)}:{self.source.line}"
        return f"{what} of {self.frame}" if self.frame else what


def graph_places(trace: Trace, graphs: Iterable[int]) -> dict[int | None, GraphPlace]:
    """Return the places of graphs by graph."""
    rows = sql.rows(trace, _PLACES, [list(graphs)])
    return {
        graph: GraphPlace(
            phase,
            frame,
            SourceLine(file, line, function or "", code or "") if file else None,
            after,
            tuple(orjson.loads(lines)) if lines else (),
        )
        for graph, phase, frame, file, line, function, code, after, lines in rows
    }
