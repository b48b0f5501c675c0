"""Queries inputs of a graph that overlap in a later call and were separate in the first."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.graphs.queries.argument_facts import VIEW, View, view_of
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

# The recorder describes arguments again once inputs of a graph share storages in another way than before.
_PAIRS = f"""
    WITH given AS (
        SELECT s.graph, s.log, s.site, a.argument, a.buffer AS name, a.role, a.parameter, t.local_call, t.dtype, t.size,
               t.stride, t.storage_offset, t.storage_address
        FROM tensors t JOIN sites s ON s.site = t.site
        JOIN arguments a ON a.site = t.site AND a.argument = t.argument
        WHERE a.buffer IS NOT NULL AND t.item IS NULL AND t.storage_address IS NOT NULL
    ), pairs AS (
        SELECT w.log, w.graph, w.local_call, w.site, {VIEW.format(of="w")} AS written, {VIEW.format(of="r")} AS read
        FROM given w JOIN given r ON r.graph = w.graph AND r.local_call = w.local_call
             AND r.storage_address = w.storage_address AND r.name <> w.name
        WHERE w.role <> 'in' AND r.role <> 'out'
        QUALIFY row_number() OVER (
            PARTITION BY w.graph, w.local_call, w.name, r.name ORDER BY w.site, w.argument, r.site, r.argument
        ) = 1
    ), later AS (
        SELECT p.* FROM pairs p
        WHERE p.local_call > (SELECT min(g.local_call) FROM given g WHERE g.site = p.site)
          AND NOT EXISTS (
              FROM pairs f WHERE f.graph = p.graph AND f.local_call < p.local_call
                AND f.written.name = p.written.name AND f.read.name = p.read.name)
    )
    SELECT p.log, p.graph, p.site, c.step, l.launch, p.written, p.read
    FROM later p JOIN calls c ON c.log = p.log AND c.local_call = p.local_call
    JOIN LATERAL (SELECT min(launch) AS launch FROM launches WHERE call = c.call AND site = p.site) l ON TRUE
    WHERE l.launch IS NOT NULL
    ORDER BY l.launch, p.read.argument
"""


@dataclass(frozen=True)
class OverlappingInputs:
    """Two inputs of a graph on the same storage, one of which the graph changes."""

    log: int
    graph: int
    site: int
    """The first launch site that writes the one that changes."""
    step: int
    launch: int
    written: View
    read: View


def inputs_on_one_storage(trace: Trace) -> list[OverlappingInputs]:
    """Return pairs of buffers of which a later call is the first that has them on one storage, in order of time. They
    need not overlap, and may be other buffers than inputs."""
    return [
        OverlappingInputs(**row | {side: view_of(row[side]) for side in ("written", "read")})
        for row in sql.named(trace, _PAIRS)
    ]
