"""The memory page of a graph: schedule, measured call and allocator on the axis of scheduler nodes."""

from __future__ import annotations

from viewer.queries.rows_of_memory import GraphMemory, MemoryCallRow, NodeMemory
from viewer.store.open import Trace


def graph_memory(trace: Trace, graph: int, call: int | None = None, subgraph: str | None = None) -> GraphMemory | None:
    """Estimated and measured curves; `call` is the measured call, without it the one with the highest peak.

    None when there is no such graph, or nothing about its memory was recorded.
    """
    raise NotImplementedError


def measured_calls(
    trace: Trace, graph: int, subgraph: str | None = None, step: int | None = None, limit: int = 200
) -> list[MemoryCallRow]:
    """Calls of the graph whose storages were followed, the one with the highest peak first; of one step, or of all."""
    raise NotImplementedError


def node_memory(
    trace: Trace, graph: int, snode_index: int, call: int | None = None, subgraph: str | None = None
) -> NodeMemory | None:
    """One node of the schedule; None when there is none of that index."""
    raise NotImplementedError
