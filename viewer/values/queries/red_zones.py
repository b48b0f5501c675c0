"""Queries the launches that wrote to the red zones of buffers."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_WRITES = """
    WITH written AS (
        SELECT w.log, w.time_unix_ns, c.call, c.graph, w.step, s.site, w.launch AS position, b.graph AS buffer_graph,
               w.buffer, w.side, w.distance, w.changed_bytes
        FROM red_zone_writes w JOIN calls c ON c.log = w.log AND c.local_call = w.call
        JOIN sites s ON s.graph = c.graph AND s.local_site = w.site
        JOIN graphs b ON b.log = w.log AND b.local_graph = w.buffer_graph
    ), placed AS (
        SELECT call, launch, row_number() OVER (PARTITION BY call ORDER BY launch) - 1 AS position
        FROM launches WHERE call IN (SELECT call FROM written)
    )
    SELECT w.log, w.time_unix_ns, w.graph, w.step, w.site, p.launch, w.buffer_graph, w.buffer, w.side, w.distance,
           w.changed_bytes
    FROM written w LEFT JOIN placed p USING (call, position) ORDER BY w.time_unix_ns, w.log, w.buffer, w.side
"""


class ZoneWrite(NamedTuple):
    """The first write of a site to a red zone of a buffer, with the ids of the index."""

    log: int
    time_unix_ns: int
    graph: int
    step: int
    site: int
    launch: int | None
    buffer_graph: int
    """The graph that allocated the buffer."""
    buffer: str
    side: str
    distance: int
    changed_bytes: int


def zone_writes(trace: Trace) -> list[ZoneWrite]:
    """Return the writes in order of time."""
    return sql.records(ZoneWrite, trace, _WRITES) if sql.has_rows(trace, "red_zone_writes") else []
