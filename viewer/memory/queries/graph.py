"""Queries a graph's memory: schedule, measured call and allocator along the axis of scheduler nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import sub

from stepscope.viewer.graphs.queries.graphs import graph_label
from stepscope.viewer.memory.queries.graph_index import (
    GraphIndex,
    MeasuredCall,
    Schedule,
    graph_index,
    highest_call,
    is_main,
    launches_of,
    measured_call,
    measured_functions,
    schedule_of,
    subgraph_of,
)
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.memory.rows import (
    GraphMemory,
    LifetimeMismatchRow,
    MemoryCallRow,
    NodeColumns,
    PeakRow,
    PositionColumns,
)
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CHANGES = """
    WITH places AS (
        SELECT least(born, $n) AS born, CASE WHEN dead IS NOT NULL THEN least(greatest(dead, born), $n) END AS dead,
               storage_bytes AS size, is_owned
        FROM layout_storages WHERE layout = $layout
    ), changes AS (
        SELECT born AS position, size AS up, 0 AS down, is_owned FROM places
        UNION ALL SELECT dead, 0, size, is_owned FROM places WHERE dead IS NOT NULL
    )
    SELECT position, coalesce(sum(up) FILTER (is_owned), 0)::BIGINT,
           coalesce(sum(down) FILTER (is_owned), 0)::BIGINT,
           coalesce(sum(up - down) FILTER (NOT is_owned), 0)::BIGINT
    FROM changes GROUP BY position
"""
_INNER = "SELECT position, storage_bytes FROM inner_bytes WHERE call = ?"
_CALLS = """
    SELECT m.call, m.step, l.function, m.layout, c.start_ns, l.peak_bytes, l.base_bytes
    FROM measured_calls m JOIN layouts l ON l.layout = m.layout JOIN calls c ON c.call = m.call
    WHERE l.graph = $graph AND list_contains($functions, l.function) AND ($step IS NULL OR m.step = $step)
    ORDER BY l.peak_bytes DESC, m.call LIMIT $most
"""


def graph_memory(trace: Trace, graph: int, call: int | None = None, subgraph: str | None = None) -> GraphMemory | None:
    """Return the estimated and measured curves; `call` defaults to the measured call with the highest peak.

    Return None if there is no such graph or nothing about its memory was recorded.
    """
    facts = sql.row(trace, "SELECT log, compile_id, phase FROM graphs WHERE graph = ?", [graph])
    functions = measured_functions(trace, graph)
    chosen = {name: count for name, count in functions.items() if subgraph_of(name) == subgraph}
    schedule = schedule_of(trace, graph, subgraph)
    if facts is None or (schedule is None and not chosen):
        return None
    call = highest_call(trace, graph, list(chosen)) if call is None and chosen else call
    measured = measured_call(trace, call) if call is not None else None
    if measured is not None and (measured.graph, subgraph_of(measured.function)) != (graph, subgraph):
        measured = None
    places = graph_index(trace, graph)
    run = _run(trace, measured, places, schedule) if measured else None
    nodes = None
    if schedule is not None:
        nodes = _nodes(schedule, places, run, lifetime_mismatches(trace, graph))
    return GraphMemory(
        graph=graph,
        log=facts[0],
        label=graph_label(graph, facts[1], facts[2]),
        subgraph=subgraph,
        subgraphs=_subgraphs(trace, graph, functions),
        nodes=nodes,
        base_bytes=schedule.base_bytes if schedule else None,
        estimated_peak=estimated_peak(schedule, places) if schedule else None,
        call=MemoryCallRow(**{one.name: getattr(measured, one.name) for one in fields(MemoryCallRow)})
        if measured
        else None,
        positions=run.columns if run else None,
        measured_peak=measured_peak(measured, run.sites, schedule, places) if measured and run else None,
        kernels=_kernels(places, nodes, run),
        calls=sum(chosen.values()),
    )


def is_call(trace: Trace, graph: int, call: int) -> bool:
    """Return whether `call` is a call of the graph, measured or not."""
    return bool(sql.number(trace, "SELECT count(*) FROM calls WHERE call = ? AND graph = ?", [call, graph]))


def measured_calls(
    trace: Trace, graph: int, subgraph: str | None = None, step: int | None = None, limit: int = 200
) -> list[MemoryCallRow]:
    """Return the measured calls of the graph in one step or in all, the one with the highest peak first."""
    functions = [name for name in measured_functions(trace, graph) if subgraph_of(name) == subgraph]
    parameters = {"graph": graph, "functions": functions, "step": step, "most": limit}
    return sql.records(MemoryCallRow, trace, _CALLS, parameters)


def _subgraphs(trace: Trace, graph: int, functions: dict[str, int]) -> list[str]:
    scheduled = sql.rows(
        trace, "SELECT subgraph FROM schedules WHERE graph = ? AND subgraph IS NOT NULL ORDER BY schedule", [graph]
    )
    return list(dict.fromkeys([*(name for (name,) in scheduled), *(name for name in functions if not is_main(name))]))


@dataclass(frozen=True)
class Measured:
    """The measurements of one call at each position."""

    columns: PositionColumns
    sites: list[int]
    """Launch site of each launch."""


def _run(trace: Trace, call: MeasuredCall, places: GraphIndex, schedule: Schedule | None) -> Measured:
    launches = launches_of(trace, call.call)
    count = len(launches)
    born, dead, base = ([0] * (count + 1) for _ in range(3))
    for position, up, down, others in sql.rows(trace, _CHANGES, {"layout": call.layout, "n": count}):
        born[position], dead[position], base[position] = up, down, others
    live = list(accumulate(map(sub, born, dead)))
    for position, inside in sql.rows(trace, _INNER, [call.call]):
        live[min(position, count)] += inside
    sites = [site for _, site, _ in launches]
    nodes = schedule.nodes_by_site(places) if schedule else {}
    first_node = {site: found[0] for site, found in nodes.items() if found}
    allocator = sql.rows(
        trace,
        "SELECT position, allocated_bytes, reserved_bytes FROM allocator WHERE call = ? AND allocated_bytes IS NOT NULL"
        " AND reserved_bytes IS NOT NULL ORDER BY position",
        [call.call],
    )
    columns = PositionColumns(
        live_bytes=live,
        base_bytes=list(accumulate(base)),
        born_bytes=born,
        dead_bytes=dead,
        launch=[*(launch for launch, _, _ in launches), None],
        site=[*sites, None],
        snode_index=[*map(first_node.get, sites), None],
        start_ns=[*(start_ns - call.start_ns for _, _, start_ns in launches), call.end_ns - call.start_ns],
        allocator_position=[position for position, _, _ in allocator],
        allocated_bytes=[allocated for _, allocated, _ in allocator],
        reserved_bytes=[reserved for _, _, reserved in allocator],
    )
    return Measured(columns, sites)


def _nodes(
    schedule: Schedule,
    places: GraphIndex,
    run: Measured | None,
    mismatches: Sequence[LifetimeMismatchRow],
) -> NodeColumns:
    count = len(schedule.snode)
    position, launched = _positions_of_nodes(schedule, places, run, count)
    site_of: dict[int, int] = {}
    for site, nodes in schedule.nodes_by_site(places).items():
        for node in nodes:
            site_of.setdefault(node, site)
    wrong = [0] * count
    for mismatch in mismatches:
        for node in mismatch.snode_indices:
            if node < count:
                wrong[node] += 1
    at = run.columns if run else None
    figures = _allocator(at) if at else {}
    of_node = [figures.get(p) if p is not None and own else None for p, own in zip(position, launched, strict=True)]
    return NodeColumns(
        snode=schedule.snode,
        kind=schedule.kind,
        alloc_bytes=schedule.alloc_bytes,
        free_bytes=schedule.free_bytes,
        after_alloc_bytes=schedule.after_alloc_bytes,
        after_free_bytes=schedule.after_free_bytes,
        measured_bytes=[at.live_bytes[p] if at and p is not None else None for p in position],
        measured_base_bytes=[at.base_bytes[p] if at and p is not None else None for p in position],
        allocated_bytes=[figure[0] if figure else None for figure in of_node],
        reserved_bytes=[figure[1] if figure else None for figure in of_node],
        position=position,
        launched=launched,
        site=[site_of.get(node) for node in range(count)],
        mismatches=wrong,
    )


def _allocator(at: PositionColumns) -> dict[int, tuple[int, int]]:
    columns = zip(at.allocator_position, at.allocated_bytes, at.reserved_bytes, strict=True)
    return {position: (allocated, reserved) for position, allocated, reserved in columns}


def _positions_of_nodes(
    schedule: Schedule, places: GraphIndex, run: Measured | None, count: int
) -> tuple[list[int | None], list[bool]]:
    """Return each node's position with the most alive, else that of the node before, and whether it has launches."""
    best: list[int | None] = [None] * count
    if run is None:
        return best, [False] * count
    live, nodes = run.columns.live_bytes, schedule.nodes_by_site(places)
    for position, site in enumerate(run.sites):
        for node in nodes.get(site, ()):
            known = best[node]
            if known is None or live[position] > live[known]:
                best[node] = position
    launched = [position is not None for position in best]
    for node in range(1, count):
        if best[node] is None:
            best[node] = best[node - 1]
    return best, launched


def estimated_peak(schedule: Schedule, places: GraphIndex) -> PeakRow:
    index = schedule.peak_snodes[0] if schedule.peak_snodes else None
    site = None
    if index is not None:
        site = next((s for s, nodes in schedule.nodes_by_site(places).items() if index in nodes), None)
    return PeakRow(
        peak_bytes=schedule.peak_bytes,
        snode=schedule.snode[index] if index is not None else None,
        snode_index=index,
        snode_indices=schedule.peak_snodes,
        position=None,
        site=site,
        kernel=places.kernel(site),
        source=places.source(site),
    )


def measured_peak(call: MeasuredCall, sites: Sequence[int], schedule: Schedule | None, places: GraphIndex) -> PeakRow:
    """Return the peak of a call; after the last launch it belongs to no node."""
    position = call.peak_position
    site = sites[position] if position < len(sites) else None
    nodes = schedule.nodes_of(places.sites.get(site)) if schedule and site is not None else []
    return PeakRow(
        peak_bytes=call.peak_bytes,
        snode=schedule.snode[nodes[0]] if schedule and nodes else None,
        snode_index=nodes[0] if nodes else None,
        snode_indices=nodes,
        position=position,
        site=site,
        kernel=places.kernel(site),
        source=places.source(site),
    )


def _kernels(places: GraphIndex, nodes: NodeColumns | None, run: Measured | None) -> dict[int, str]:
    sites = {*(nodes.site if nodes else ()), *(run.sites if run else ())}
    return {site: facts.kernel for site, facts in places.sites.items() if site in sites}
