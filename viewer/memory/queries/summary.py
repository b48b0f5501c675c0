"""Queries the memory figures of the summary and the overview."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from stepscope.viewer.memory.queries.growth import growth
from stepscope.viewer.memory.queries.peak_parts import parts_of
from stepscope.viewer.memory.queries.peak_rows import PeakPart
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ESTIMATED = """
    SELECT s.graph, s.peak_bytes, n.snode, n.snode_index FROM schedules s
    LEFT JOIN schedule_nodes n ON n.schedule = s.schedule
      AND n.snode_index = CAST(nullif(regexp_extract(s.peak_snodes, '[0-9]+'), '') AS BIGINT)
    WHERE s.subgraph IS NULL
"""
_MEASURED = """
    SELECT l.graph, max(l.peak_bytes), arg_max(coalesce(s.snodes, '[]'), (l.peak_bytes, -l.layout))
    FROM layouts l LEFT JOIN sites s ON s.site = l.peak_site
    WHERE l.calls > 0 AND (l.function = 'call' OR starts_with(l.function, 'partition_')) GROUP BY l.graph
"""
_NODE = """
    SELECT n.snode, n.snode_index FROM schedule_nodes n JOIN schedules s ON s.schedule = n.schedule
    WHERE s.graph = $1 AND s.subgraph IS NULL
      AND (list_contains($2, n.snode) OR list_has_any($2, from_json(n.members, '["VARCHAR"]')))
    ORDER BY n.snode_index LIMIT 1
"""


@dataclass(frozen=True)
class NodePeak:
    peak_bytes: int
    snode: str | None
    snode_index: int | None


@dataclass(frozen=True)
class MemoryFigures:
    """The peak of the log with the highest peak, and the fastest growth of any log; None where unknown."""

    peak_bytes: int | None
    peak_step: int | None
    peak_graph: int | None
    growth_bytes_per_step: int | None
    peak_parts: list[PeakPart] | None = None
    """What that peak consists of, the largest part first; the parts add up to it."""


def estimated_peaks(trace: Trace) -> dict[int, NodePeak]:
    """Return the scheduler's peak of each graph, at the first node that reaches it."""
    return {graph: NodePeak(*rest) for graph, *rest in sql.rows(trace, _ESTIMATED)}


def measured_peaks(trace: Trace) -> dict[int, NodePeak]:
    """Return the highest measured peak of each graph's calls."""
    peaks = {}
    for graph, peak_bytes, snodes in sql.rows(trace, _MEASURED):
        names = sql.json_value(snodes)
        node = sql.row(trace, _NODE, [graph, names]) if names else None
        peaks[graph] = NodePeak(peak_bytes, *(node or (None, None)))
    return peaks


def memory_figures(trace: Trace) -> MemoryFigures:
    peaks, grown = run_peaks(trace), growth(trace)
    by_log: defaultdict[int, int] = defaultdict(int)
    for row in grown or ():
        by_log[row.log] += row.bytes_per_step
    return MemoryFigures(
        peak_bytes=peaks[0].live_bytes if peaks else None,
        peak_step=peaks[0].step if peaks else None,
        peak_graph=peaks[0].graph if peaks else None,
        growth_bytes_per_step=None if grown is None else max(by_log.values(), default=0),
        peak_parts=parts_of(trace, peaks[0]).parts if peaks and peaks[0].live_bytes else None,
    )
