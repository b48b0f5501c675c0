"""Queries the leaks of a run: live bytes at the end of each step, and the storages that each step left behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import accumulate

from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.memory.queries.graph_index import label_of
from stepscope.viewer.memory.queries.growth import grown_storages, holders_of, leak_of
from stepscope.viewer.memory.queries.leak_rows import GrowthRow, Leak, LeakedBuffer, LeakedStorage, LeftBehindRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_STORAGES = 200
"""Maximum number of storages that a leak lists; its sums count all."""
# A log has a row of live bytes for each change, so the last row before the end of a step holds at its end.
_ENDS = """
    WITH ends AS (
        SELECT step, coalesce(lead(start_ns) OVER (ORDER BY start_ns), greatest(
                   start_ns, (SELECT max(last_ns) FROM live_peaks WHERE log = $log)) + 1) AS end_ns
        FROM steps WHERE log = $log
    ), live AS (
        SELECT ns, max(live_bytes) AS live_bytes FROM live_bytes WHERE log = $log AND device = $device GROUP BY ns
    )
    SELECT e.step, b.live_bytes FROM ends e ASOF LEFT JOIN live b ON e.end_ns > b.ns ORDER BY e.step
"""
_LAUNCHES = """
    SELECT call, site, min(launch) FROM launches WHERE list_contains($1, call) AND list_contains($2, site)
    GROUP BY call, site
"""


def leaks(trace: Trace) -> list[Leak]:
    """Return the leaks, most bytes per step first. A leak may have several buffers."""
    groups: defaultdict[Hashable, list[tuple[GrowthRow, list[LeftBehindRow]]]] = defaultdict(list)
    for row, storages in grown_storages(trace) or ():
        groups[leak_of(row)].append((row, storages))
    found = [_leak(trace, group) for group in groups.values()]
    return sorted(found, key=lambda leak: -leak.bytes_per_step)


def _leak(trace: Trace, group: Sequence[tuple[GrowthRow, list[LeftBehindRow]]]) -> Leak:
    rows, storages = [row for row, _ in group], [storage for _, some in group for storage in some]
    first = rows[0]
    left: defaultdict[int, int] = defaultdict(int)
    for storage in storages:
        left[storage.step] += storage.storage_bytes
    ends = sql.rows(trace, _ENDS, {"log": first.log, "device": storages[0].device})
    steps = [step for step, _ in ends] or sorted(left)
    return Leak(
        name=f"{first.graph}.{first.buffer}",
        log=first.log,
        holders=holders_of(rows),
        freed_by_collection=first.freed_by_collection,
        bytes_per_step=sum(row.bytes_per_step for row in rows),
        storage_bytes=sum(row.storage_bytes for row in rows),
        first_step=min(left),
        last_step=max(left),
        buffers=[_buffer(trace, row) for row in rows],
        storages=_listed(trace, storages),
        all_storages=len(storages),
        steps=steps,
        live_bytes=[size for _, size in ends] or [None] * len(steps),
        held_bytes=list(accumulate(left.get(step, 0) for step in steps)),
        left_bytes=[left.get(step, 0) for step in steps],
    )


def _buffer(trace: Trace, row: GrowthRow) -> LeakedBuffer:
    return LeakedBuffer(row, label_of(trace, row.graph), name_in_program(trace, row.graph, row.buffer))


def _listed(trace: Trace, storages: Sequence[LeftBehindRow]) -> list[LeakedStorage]:
    shown = sorted(storages, key=lambda row: (-row.storage_bytes, row.step, row.call))[:MOST_STORAGES]
    calls, sites = [row.call for row in shown], [row.site for row in shown if row.site is not None]
    launches = {(call, site): launch for call, site, launch in sql.rows(trace, _LAUNCHES, [calls, sites])}
    return [
        LeakedStorage(row, launches.get((row.call, row.site)), name_in_program(trace, row.graph, row.buffer))
        for row in shown
    ]
