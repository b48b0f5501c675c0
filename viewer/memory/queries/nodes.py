"""Queries what one scheduler node allocates and frees, as scheduled and as measured in a call."""

from __future__ import annotations

from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.memory.queries.graph_index import (
    GraphIndex,
    Schedule,
    graph_index,
    highest_call,
    launches_of,
    measured_call,
    measured_functions,
    schedule_of,
    subgraph_of,
)
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.memory.rows import BufferDelta, NodeMemory, ScheduledBufferRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.buffers import buffer_names

_SCHEDULED = """
    SELECT name, alloc_bytes, free_bytes, first_snode, last_snode, role FROM scheduled_buffers
    WHERE schedule = $schedule AND role <> 'base' AND first_snode <= $at AND (last_snode = -1 OR last_snode >= $at)
    ORDER BY alloc_bytes DESC, name
"""
_MEASURED = """
    SELECT name, storage_bytes, kind, list_contains($positions, born) AND (kind <> 'input') AS is_born,
           dead IS NOT NULL AND list_contains($ends, dead) AS is_dead
    FROM layout_storages WHERE layout = $layout AND (is_born OR is_dead) ORDER BY storage_bytes DESC, storage
"""


def node_memory(
    trace: Trace, graph: int, snode_index: int, call: int | None = None, subgraph: str | None = None
) -> NodeMemory | None:
    """Return one node of the schedule, or None if there is no node with that index."""
    schedule = schedule_of(trace, graph, subgraph)
    if schedule is None or not 0 <= snode_index < len(schedule.snode):
        return None
    kind, members = sql.rows(
        trace,
        "SELECT kind, members FROM schedule_nodes WHERE schedule = ? AND snode_index = ?",
        [schedule.schedule, snode_index],
    )[0]
    named_in = graph if subgraph is None else None
    alive = scheduled_alive(trace, schedule.schedule, snode_index, named_in)
    places = graph_index(trace, graph)
    sites = (site for site, nodes in schedule.nodes_by_site(places).items() if snode_index in nodes)
    positions, found = _measured(trace, graph, call, subgraph, schedule, places, snode_index)
    born, dead = (
        [
            BufferDelta(name, size, kind, name_in_program(trace, named_in, name))
            for name, size, kind, *moved in found
            if moved[is_freed]
        ]
        for is_freed in (False, True)
    )
    return NodeMemory(
        index=snode_index,
        snode=schedule.snode[snode_index],
        kind=kind,
        members=sql.json_value(members),
        allocated=[_delta(b, b.alloc_bytes) for b in alive if b.first_snode == snode_index and b.role != "input"],
        freed=[_delta(b, b.free_bytes) for b in alive if b.last_snode == snode_index],
        expected_alive=alive,
        born=born,
        dead=dead,
        positions=positions,
        source=places.source(next(sites, None)),
        mismatches=[m for m in lifetime_mismatches(trace, graph) if snode_index in m.snode_indices],
        linked=buffer_names(trace, graph) if subgraph is None else [],
    )


def scheduled_alive(trace: Trace, schedule: int, at: int, graph: int | None = None) -> list[ScheduledBufferRow]:
    """Return the buffers that the schedule expects alive while node `at` runs, largest first, without the base.

    With `graph`, inputs and outputs have the program's names."""
    found = sql.rows(trace, _SCHEDULED, {"schedule": schedule, "at": at})
    return [ScheduledBufferRow(*[*row, name_in_program(trace, graph, row[0])]) for row in found]


def _delta(buffer: ScheduledBufferRow, size: int) -> BufferDelta:
    return BufferDelta(buffer.name, size, buffer.role, buffer.program)


def _measured(
    trace: Trace,
    graph: int,
    call: int | None,
    subgraph: str | None,
    schedule: Schedule,
    places: GraphIndex,
    node: int,
) -> tuple[list[int], list[sql.Row]]:
    """Return the positions of the node's launches in the call, and the storages born or freed there."""
    if call is None:
        functions = [name for name in measured_functions(trace, graph) if subgraph_of(name) == subgraph]
        call = highest_call(trace, graph, functions)
    measured = measured_call(trace, call) if call is not None else None
    if measured is None:
        return [], []
    launches = launches_of(trace, measured.call)
    nodes = schedule.nodes_by_site(places)
    positions = [i for i, (_, site, _) in enumerate(launches) if node in nodes.get(site, ())]
    ends = [position + 1 for position in positions]
    return positions, sql.rows(trace, _MEASURED, {"layout": measured.layout, "positions": positions, "ends": ends})
