"""Compares the memory of two graphs, of two calls of a graph, and of estimates with measurements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.graphs import graph_row, wrapper_code
from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.alive import K, alive_in_call, sums
from stepscope.viewer.memory.queries.graph import graph_memory
from stepscope.viewer.memory.queries.graph_index import GraphIndex, graph_index, schedule_of
from stepscope.viewer.memory.queries.nodes import scheduled_alive
from stepscope.viewer.memory.rows import (
    INPUT_KINDS,
    Alive,
    AliveRow,
    EstimateGap,
    GapBuffer,
    GraphMemory,
    ScheduledBufferRow,
)
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_BUFFERS = 100
_EVERYTHING = 1 << 62
_WRAPPERS = "SELECT count(DISTINCT wrapper_key) = 1 AND count(wrapper_key) = count(*) FROM graphs WHERE graph IN (?, ?)"
_BOTH = """
    SELECT s.graph, s.peak_bytes, max(l.peak_bytes) FROM schedules s JOIN layouts l ON l.graph = s.graph
    WHERE s.subgraph IS NULL AND l.calls > 0 AND (l.function = 'call' OR starts_with(l.function, 'partition_'))
    GROUP BY s.graph, s.peak_bytes
    HAVING max(l.peak_bytes) - s.peak_bytes >= $least AND max(l.peak_bytes) > s.peak_bytes * (1 + $share)
    ORDER BY max(l.peak_bytes) - s.peak_bytes DESC, s.graph
"""
_GIVEN = """
    SELECT s.storage_bytes, b.alloc_bytes FROM measured_calls m JOIN layout_storages s ON s.layout = m.layout
    JOIN schedules p ON p.graph = ? AND p.subgraph IS NULL
    JOIN scheduled_buffers b ON b.schedule = p.schedule AND b.name = s.name
    WHERE m.call = ? AND s.kind = 'input' AND b.role IN ('base', 'input') AND b.alloc_bytes > 0
"""
_SYMBOL = re.compile(r"^[ \t]+([a-z]+)\d+ = ", re.MULTILINE)
"""Matches a size that the wrapper reads from its arguments (``s33 = arg2_1``) or from data (``u0 = …``)."""
_SIZES, _SIZES_OF_DATA = {"s", "ks"}, {"u"}


@dataclass(frozen=True)
class Difference:
    name: str
    """Buffer, or ``file:line`` of model source."""
    program: str | None
    """Buffer's name in the user's program; None if it has none or it is unknown."""
    source: SourceLine | None
    left_bytes: int | None
    """None if not alive on that side."""
    right_bytes: int | None
    delta_bytes: int


@dataclass(frozen=True)
class MemoryComparison:
    """Two graphs, or two calls of one graph, compared at their measured peaks."""

    left: GraphMemory
    right: GraphMemory
    same_graph: bool
    """Whether both run the same wrapper, so that nodes and names have the same meaning."""
    by_buffer: list[Difference]
    """Differences by buffer; empty unless `same_graph`."""
    by_source: list[Difference]
    peak_delta_bytes: int | None
    base_delta_bytes: int | None


def compare_memory(
    trace: Trace, left: int, right: int, left_call: int | None = None, right_call: int | None = None
) -> MemoryComparison | None:
    """Compare two graphs, or two calls of one graph, at their measured peaks.

    A call defaults to the one with the highest peak. Return None if a graph has no memory records."""
    sides = graph_memory(trace, left, left_call), graph_memory(trace, right, right_call)
    if sides[0] is None or sides[1] is None:
        return None
    same = left == right or bool(sql.number(trace, _WRAPPERS, [left, right]))
    alive = [_at_peak(trace, side) for side in sides if side is not None]
    names = [sums((row.name, row.storage_bytes) for row in one) for one in alive]
    lines = [sums((row.source, row.storage_bytes) for row in one) for one in alive]
    calls = sides[0].call, sides[1].call
    both = calls[0] is not None and calls[1] is not None
    return MemoryComparison(
        left=sides[0],
        right=sides[1],
        same_graph=same,
        by_buffer=[
            Difference(name, name_in_program(trace, left, name), None, *row) for name, row in _differences(*names)
        ]
        if same and both
        else [],
        by_source=[Difference(_line(source), None, source, *row) for source, row in _differences(*lines)]
        if both
        else [],
        peak_delta_bytes=calls[1].peak_bytes - calls[0].peak_bytes if calls[0] and calls[1] else None,
        base_delta_bytes=calls[1].base_bytes - calls[0].base_bytes if calls[0] and calls[1] else None,
    )


def _at_peak(trace: Trace, side: GraphMemory) -> list[AliveRow]:
    alive = alive_in_call(trace, side.call.call, limit=_EVERYTHING) if side.call else None
    return alive.rows if alive else []


def _differences(left: Mapping[K, int], right: Mapping[K, int]) -> list[tuple[K, tuple[int | None, int | None, int]]]:
    """Return (key, (left, right, difference)) by descending difference, at most `MOST_BUFFERS`."""
    rows = [
        (key, (left.get(key), right.get(key), right.get(key, 0) - left.get(key, 0)))
        for key in dict.fromkeys([*left, *right])
    ]
    return sorted(rows, key=lambda pair: (-abs(pair[1][2]), -(pair[1][0] or 0)))[:MOST_BUFFERS]


def _line(source: SourceLine | None) -> str:
    return source.place if source else "no line of the model"


def estimate_gaps(trace: Trace, least_share: float = 0.0, least_bytes: int = 1) -> list[EstimateGap]:
    """Return the graphs whose measured peak exceeds the estimate by both thresholds, largest gap first.

    An estimate holds for one set of sizes, so graphs whose call has other sizes are left out."""
    found = sql.rows(trace, _BOTH, {"share": least_share, "least": least_bytes})
    gaps = (_gap(trace, graph) for graph, _, _ in found)
    return [gap for gap in gaps if gap is not None]


def _gap(trace: Trace, graph: int) -> EstimateGap | None:
    memory = graph_memory(trace, graph)
    if memory is None or memory.call is None or memory.measured_peak is None or memory.estimated_peak is None:
        return None
    if not _is_of_its_sizes(trace, graph, memory.call.call):
        return None
    measured, estimated = memory.measured_peak, memory.estimated_peak
    alive = alive_in_call(trace, memory.call.call, limit=_EVERYTHING)
    node = measured.snode_index
    return EstimateGap(
        graph=graph,
        log=memory.log,
        label=memory.label,
        call=memory.call.call,
        step=memory.call.step,
        estimated=estimated,
        measured=measured,
        gap_bytes=measured.peak_bytes - estimated.peak_bytes,
        buffers=_gap_buffers(trace, graph, alive, node if node is not None else estimated.snode_index),
    )


def _is_of_its_sizes(trace: Trace, graph: int, call: int) -> bool:
    """Return whether the call has the sizes of the estimate; always so for static shapes, never for unbacked sizes."""
    row = graph_row(trace, graph)
    symbols = set(_SYMBOL.findall((wrapper_code(trace, row) if row is not None else None) or ""))
    if row is None or not (row.dynamic or symbols & (_SIZES | _SIZES_OF_DATA)):
        return True
    given = sql.rows(trace, _GIVEN, [graph, call])
    return not symbols & _SIZES_OF_DATA and bool(given) and all(size == hint for size, hint in given)


def _gap_buffers(trace: Trace, graph: int, alive: Alive | None, node: int | None) -> list[GapBuffer]:
    """Return the storages at the measured peak that are larger than the schedule expects at that node."""
    schedule, places = schedule_of(trace, graph, None), graph_index(trace, graph)
    if schedule is None or alive is None:
        return []
    scheduled = scheduled_alive(trace, schedule.schedule, node) if node is not None else []
    expected = {buffer.name: buffer for buffer in scheduled}
    everything = {name for (name,) in sql.rows(trace, _NAMES, [schedule.schedule])}
    gaps = [_gap_buffer(places, row, expected, everything) for row in alive.rows if not row.is_base]
    larger = [gap for gap in gaps if gap.measured_bytes > gap.expected_bytes]
    return sorted(larger, key=lambda gap: gap.expected_bytes - gap.measured_bytes)[:MOST_BUFFERS]


_NAMES = "SELECT name FROM scheduled_buffers WHERE schedule = ?"


def _gap_buffer(
    places: GraphIndex, row: AliveRow, expected: Mapping[str, ScheduledBufferRow], everything: set[str]
) -> GapBuffer:
    names = [row.name, *row.other_names]
    alive = [expected[name] for name in names if name in expected]
    # What an operator returns has a second name in the schedule, which allocates nothing and frees what the first did.
    size = sum(buffer.alloc_bytes for buffer in alive) or sum(buffer.free_bytes for buffer in alive)
    reused = [name for name in row.other_names if name in places.reused and name not in expected]
    if size:
        why = "its storage is larger than the schedule's buffer"
    elif not everything.intersection(names):
        why = "the schedule does not contain it"
    elif row.kind in INPUT_KINDS:
        why = "according to the schedule the graph has freed this input; its caller or autograd still holds it"
    elif reused:
        why = f"according to the schedule it is freed; the wrapper keeps it for {', '.join(reused[:4])}"
    else:
        why = "according to the schedule it is not alive here"
    return GapBuffer(row.name, row.other_names, row.storage_bytes, size, why, row.source)
