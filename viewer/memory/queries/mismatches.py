"""Queries storages whose lifetimes differ from the expected ones; also exports growth and recompute mismatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stepscope.viewer.memory.queries.graph_index import (
    KEPT,
    GraphIndex,
    Schedule,
    graph_index,
    launches_of,
    schedule_of,
    subgraph_of,
)
from stepscope.viewer.memory.queries.growth import growth, left_behind
from stepscope.viewer.memory.queries.recompute import recompute_detail, recompute_mismatches
from stepscope.viewer.memory.rows import LifetimeMismatchRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

__all__ = ["growth", "left_behind", "lifetime_mismatches", "recompute_detail", "recompute_mismatches"]

_MISMATCHES = """
    SELECT m.mismatch, m.log, m.graph, m.layout, m.call, c.step, coalesce(l.calls, 0) AS calls, m.kind, m.buffer,
           m.storage, coalesce(m.storage_bytes, s.storage_bytes) AS storage_bytes, m.expected, m.actual, m.expected_by,
           m.holders, l.function, s.site
    FROM lifetime_mismatches m LEFT JOIN layouts l ON l.layout = m.layout LEFT JOIN calls c ON c.call = m.call
    LEFT JOIN layout_storages s ON s.layout = m.layout AND s.storage = m.storage
    WHERE $1 IS NULL OR m.graph = $1 ORDER BY m.mismatch
"""


class _Mismatch(NamedTuple):
    mismatch: int
    log: int
    graph: int
    layout: int | None
    call: int | None
    step: int | None
    calls: int
    kind: str
    buffer: str
    storage: int | None
    storage_bytes: int | None
    expected: int | None
    actual: int | None
    expected_by: str
    holders: str
    function: str | None
    site: int | None


@dataclass
class _Context:
    """What is needed to resolve the mismatches of one graph."""

    places: GraphIndex
    schedules: dict[str | None, Schedule | None]
    launches: dict[int, list[tuple[int, int, int]]]


def lifetime_mismatches(trace: Trace, graph: int | None = None) -> list[LifetimeMismatchRow]:
    """Return the mismatches of one graph, or of all, in log order; the list is shared and must not be modified."""
    return trace.once(_read, graph, most=KEPT)


def _read(trace: Trace, graph: int | None) -> list[LifetimeMismatchRow]:
    contexts: dict[int, _Context] = {}
    result = []
    for row in sql.records(_Mismatch, trace, _MISMATCHES, [graph]):
        if row.graph not in contexts:
            contexts[row.graph] = _Context(graph_index(trace, row.graph), {}, {})
        result.append(_mismatch(trace, contexts[row.graph], row))
    return result


def _mismatch(trace: Trace, context: _Context, row: _Mismatch) -> LifetimeMismatchRow:
    launches = _launches(trace, context, row.call)
    subgraph = subgraph_of(row.function or "call")
    if subgraph not in context.schedules:
        context.schedules[subgraph] = schedule_of(trace, row.graph, subgraph)
    schedule = context.schedules[subgraph]
    at = [_launch_at(launches, position, row.kind) for position in (row.expected, row.actual)]
    nodes = [
        schedule.nodes_of(context.places.sites.get(launch[1])) if schedule and launch is not None else []
        for launch in at
    ]
    names = [schedule.snode[found[0]] if schedule and found else None for found in nodes]
    kernels = [context.places.kernel(launch[1]) if launch else None for launch in at]
    actual_launch = at[1]
    return LifetimeMismatchRow(
        mismatch=row.mismatch,
        log=row.log,
        graph=row.graph,
        layout=row.layout,
        call=row.call,
        step=row.step,
        calls=row.calls,
        kind=row.kind,
        buffer=row.buffer,
        storage=row.storage,
        storage_bytes=row.storage_bytes,
        expected=row.expected,
        actual=row.actual,
        expected_by=row.expected_by,
        holders=sql.json_value(row.holders),
        expected_snode=names[0],
        expected_kernel=kernels[0],
        actual_snode=names[1],
        actual_kernel=kernels[1],
        actual_launch=actual_launch[0] if actual_launch else None,
        source=context.places.source(context.places.writer(row.buffer, row.site)),
        snode_indices=sorted({*nodes[0], *nodes[1]}),
    )


def _launches(trace: Trace, context: _Context, call: int | None) -> list[tuple[int, int, int]]:
    if call is None:
        return []
    if call not in context.launches:
        context.launches[call] = launches_of(trace, call)
    return context.launches[call]


def _launch_at(
    launches: Sequence[tuple[int, int, int]], position: int | None, kind: str
) -> tuple[int, int, int] | None:
    """Return the launch at a position; for a death, the last launch during which the storage was alive."""
    if position is None:
        return None
    index = position - 1 if kind.endswith("death") else position
    return launches[index] if 0 <= index < len(launches) else None
