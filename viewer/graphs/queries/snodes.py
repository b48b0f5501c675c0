"""Scheduler nodes of graphs, as far as the launch sites name them."""

from __future__ import annotations

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


def snode_counts(trace: Trace) -> dict[int, int]:
    """graph -> how many scheduler nodes its launch sites name; no entry where none was recorded."""
    names: dict[int, set[str]] = {}
    for graph, snodes in sql.rows(trace, "SELECT graph, snodes FROM sites WHERE snodes IS NOT NULL"):
        names.setdefault(graph, set()).update(sql.json_value(snodes))
    return {graph: len(found) for graph, found in names.items()}
