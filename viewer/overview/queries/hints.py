"""Tells which option finds a wrong number that is finite, where the trace shows what may be wrong."""

from __future__ import annotations

from stepscope.viewer.graphs.queries.graphs import code_of_graph
from stepscope.viewer.graphs.queries.signatures import returned_inputs
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural

MOST_GRAPHS = 20
"""Number of graphs whose code is looked at."""
MOST_NAMED = 3


def is_compared(trace: Trace) -> bool:
    """Return whether calls of graphs were compared with eager mode or with another layer of their compile."""
    return sql.has_rows(trace, "layer_checks")


def eager_hint(trace: Trace) -> list[str]:
    """Return that graphs return an input itself, unless graphs were compared with eager mode.

    For healthy code, AOTAutograd makes such results outside of the graph. Graphs of training keep inputs for their
    backward, so they tell nothing.
    """
    if is_compared(trace):
        return []
    graphs = sql.rows(
        trace,
        "SELECT graph, compile_id FROM graphs WHERE phase = 'inference' AND not_recorded IS NULL"
        " ORDER BY graph LIMIT ?",
        [MOST_GRAPHS],
    )
    found = [compile_id or "?" for graph, compile_id in graphs if returned_inputs(code_of_graph(trace, graph) or "")]
    if not found:
        return []
    names = ", ".join(found[:MOST_NAMED]) + (", …" if len(found) > MOST_NAMED else "")
    return [
        f"{plural(len(found), 'graph')} ({names}) return an input itself as a result; record with --check-eager to see"
        " whether eager code gives memory of its own."
        if len(found) > 1
        else f"The graph {names} returns an input itself as a result; record with --check-eager to see whether eager"
        " code gives memory of its own."
    ]
