"""Finds random numbers that the forward graph of a compile draws and that its backward graph draws anew."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.compiles.random_draws import drawn_in, lines_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_PAIRS = """
    SELECT b.log, b.compile_id, c.frame, b.time_unix_ns, b.record AS backward, (
               SELECT max(f.record) FROM records f
               WHERE f.log = b.log AND f.compile_id = b.compile_id AND f.event = 'aot_forward_graph'
                 AND f.record < b.record) AS forward
    FROM records b LEFT JOIN compiles c ON c.log = b.log AND c.compile_id = b.compile_id
    WHERE b.event = 'aot_backward_graph' ORDER BY b.record
"""
_RUNS = """
    SELECT g.graph, min(c.step), count(*) FROM graphs g JOIN calls c ON c.graph = g.graph
    WHERE g.log = ? AND g.compile_id = ? AND g.phase = 'backward' GROUP BY g.graph ORDER BY g.graph
"""


class DrawnTwice(NamedTuple):
    """A compile whose backward graph draws random numbers that its forward graph has drawn already."""

    log: int
    compile_id: str
    frame: str | None
    time_unix_ns: int
    names: list[str]
    """The nodes of the graphs."""
    sources: list[SourceLine]
    """The lines of the model that use the numbers."""
    graph: int | None
    """The backward graph; None if the log has no calls of it."""
    step: int | None
    """The first step that ran it."""
    calls: int


def drawn_twice(trace: Trace) -> list[DrawnTwice]:
    """Return the compiles in order. The two graphs are parts of one joint graph, so that a node has one name in both
    of them."""
    found = []
    for log, compile_id, frame, time_ns, backward, forward in sql.rows(trace, _PAIRS):
        text = trace.payload(backward).decode("utf-8", "replace")
        drawn = [one.name for one in drawn_in(text)] if forward is not None else []
        if not drawn:
            continue
        before = {one.name for one in drawn_in(trace.payload(forward).decode("utf-8", "replace"))}
        again = [name for name in drawn if name in before]
        if again:
            runs = sql.row(trace, _RUNS, [log, compile_id]) or (None, None, 0)
            found.append(DrawnTwice(log, compile_id, frame, time_ns or 0, again, lines_of(text, again), *runs))
    return found
