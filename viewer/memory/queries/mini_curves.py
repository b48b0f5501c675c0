"""Computes the small memory curves of graphs on the overview and on the memory page of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from stepscope.viewer.memory.queries.graphs import graphs_by_peak

if TYPE_CHECKING:
    from stepscope.viewer.memory.rows import GraphMemory
    from stepscope.viewer.store.trace import Trace

MINI_POINTS = 96


@dataclass(frozen=True)
class MiniCurve:
    """A small curve of a graph's memory, whose points are shares of the highest value."""

    graph: int
    label: str
    estimated: list[float]
    measured: list[float]
    estimated_peak_bytes: int | None
    measured_peak_bytes: int | None
    base_bytes: int | None
    at: str | None
    """Scheduler node of the measured peak, else of the estimated one."""
    step: int | None
    mismatches: int


def mini_curves(trace: Trace, most: int) -> tuple[list[MiniCurve], int]:
    """Return the curves of at most `most` graphs by descending peak, and the number of graphs left out."""
    found = graphs_by_peak(trace)
    if not found:
        return [], 0
    from stepscope.viewer.memory.queries.graph import graph_memory

    memories = (graph_memory(trace, graph) for graph in found[:most])
    return [mini_curve(memory) for memory in memories if memory is not None], max(0, len(found) - most)


def mini_curve(memory: GraphMemory) -> MiniCurve:
    nodes, estimated, measured = memory.nodes, memory.estimated_peak, memory.measured_peak
    at = measured or estimated
    columns: list[Sequence[int | None]] = [[], []]
    if nodes is not None:
        columns = [nodes.after_alloc_bytes, nodes.measured_bytes]
    elif memory.positions is not None:
        columns = [[], memory.positions.live_bytes]
    top = max((value for column in columns for value in column if value is not None), default=0)
    return MiniCurve(
        graph=memory.graph,
        label=memory.label,
        estimated=_shares(columns[0], top),
        measured=_shares(columns[1], top),
        estimated_peak_bytes=estimated.peak_bytes if estimated else None,
        measured_peak_bytes=measured.peak_bytes if measured else None,
        base_bytes=memory.call.base_bytes if memory.call else memory.base_bytes,
        at=at.snode if at else None,
        step=memory.call.step if memory.call else None,
        mismatches=sum(nodes.mismatches) if nodes else 0,
    )


def _shares(column: Sequence[int | None], top: int) -> list[float]:
    """Return the maximum of each part as a share of `top`, for at most `MINI_POINTS` parts; empty if all unknown."""
    if not top or all(value is None for value in column):
        return []
    count = min(len(column), MINI_POINTS)
    edges = [i * len(column) // count for i in range(count + 1)]
    return [round(max(value or 0 for value in column[a:b]) / top, 4) for a, b in pairwise(edges)]
