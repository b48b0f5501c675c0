"""The scheduler nodes of graphs that launch sites name."""

from __future__ import annotations

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


def snode_counts(trace: Trace) -> dict[int, int]:
    """Return how many scheduler nodes the launch sites of each graph name. Graphs without a record are left out."""
    names: dict[int, set[str]] = {}
    for graph, snodes in sql.rows(trace, "SELECT graph, snodes FROM sites WHERE snodes IS NOT NULL"):
        names.setdefault(graph, set()).update(sql.json_value(snodes))
    return {graph: len(found) for graph, found in names.items()}
