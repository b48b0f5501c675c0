"""Queries storages whose lifetimes differ from the expected ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.memory.queries.graph_index import KEPT, graph_index, launches_of, schedule_of, subgraph_of
from stepscope.viewer.memory.rows import LifetimeMismatchRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_MISMATCHES = """
    SELECT m.mismatch, m.log, m.graph, m.layout, m.call, c.step, coalesce(l.calls, 0) AS calls, m.kind, m.buffer,
           m.storage, coalesce(m.storage_bytes, s.storage_bytes) AS storage_bytes, m.expected, m.actual, m.expected_by,
           m.holders, l.function, s.site
    FROM lifetime_mismatches m LEFT JOIN layouts l ON l.layout = m.layout LEFT JOIN calls c ON c.call = m.call
    LEFT JOIN layout_storages s ON s.layout = m.layout AND s.storage = m.storage
    WHERE $1 IS NULL OR m.graph = $1 ORDER BY m.mismatch
"""


def lifetime_mismatches(trace: Trace, graph: int | None = None) -> list[LifetimeMismatchRow]:
    """Return the mismatches of one graph, or of all, in log order; the list is shared and must not be modified."""
    return trace.once(_read, graph, most=KEPT)


def _read(trace: Trace, graph: int | None) -> list[LifetimeMismatchRow]:
    index, schedules = cache(partial(graph_index, trace)), cache(partial(schedule_of, trace))
    launches = cache(partial(launches_of, trace))
    result = []
    for row in sql.named(trace, _MISMATCHES, [graph], json=("holders",)):
        function, site = row.pop("function"), row.pop("site")
        places, schedule = index(row["graph"]), schedules(row["graph"], subgraph_of(function or "call"))
        ran = launches(row["call"]) if row["call"] is not None else []
        at = [_launch_at(ran, row[side], row["kind"]) for side in ("expected", "actual")]
        nodes = [schedule.nodes_of(places.sites.get(launch[1])) if schedule and launch else [] for launch in at]
        names = [schedule.snode[found[0]] if schedule and found else None for found in nodes]
        kernels = [places.kernel(launch[1]) if launch else None for launch in at]
        mismatch = LifetimeMismatchRow(
            **row,
            expected_snode=names[0],
            expected_kernel=kernels[0],
            actual_snode=names[1],
            actual_kernel=kernels[1],
            actual_launch=at[1][0] if at[1] else None,
            source=places.source(places.writer(row["buffer"], site)),
            snode_indices=sorted({*nodes[0], *nodes[1]}),
            program=name_in_program(trace, row["graph"], row["buffer"]),
        )
        result.append(mismatch)
    return result


def _launch_at(
    launches: Sequence[tuple[int, int, int]], position: int | None, kind: str
) -> tuple[int, int, int] | None:
    """Return the launch at a position; for a death, the last launch during which the storage was alive."""
    if position is None:
        return None
    index = position - 1 if kind.endswith("death") else position
    return launches[index] if 0 <= index < len(launches) else None
