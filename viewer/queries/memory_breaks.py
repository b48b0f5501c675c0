"""Tensors that a graph break keeps alive: what one compiled region made and the resumed function had used up."""

from __future__ import annotations

import re
from dataclasses import dataclass

from viewer.queries import sql
from viewer.queries.memory_places import GraphPlaces, graph_places, launches_of
from viewer.queries.rows_of_graphs import SourceLine
from viewer.store.open import Trace

_HELD = """
    SELECT a.log, ga.compile_id, gb.compile_id, ca.function, cb.function, al.graph, b.graph, b.first_call, a.call,
           r.storage, r.name, s.name, s.storage_bytes, s.dead, r.site
    FROM layouts b JOIN measured_calls m ON m.call = b.first_call
    JOIN layout_storages s ON s.layout = b.layout AND s.kind = 'input' AND s.calls_back > 0
    JOIN measured_calls a ON a.log = m.log AND a.local_call = m.local_call - s.calls_back
    JOIN layouts al ON al.layout = a.layout
    JOIN layout_storages r ON r.layout = a.layout AND r.storage = s.met_as AND r.kind <> 'input'
    JOIN survivors v ON v.call = a.call AND v.storage = r.storage AND NOT v.met_by_backward AND v.died_ns IS NOT NULL
    JOIN graphs ga ON ga.graph = al.graph JOIN graphs gb ON gb.graph = b.graph
    JOIN compiles ca ON ca.log = ga.log AND ca.compile_id = ga.compile_id
    JOIN compiles cb ON cb.log = gb.log AND cb.compile_id = gb.compile_id
    WHERE starts_with(cb.function, 'torch_dynamo_resume_in_') AND ga.compile_id <> gb.compile_id
    ORDER BY m.local_call
"""
_RESUMED = re.compile(r"^(?:torch_dynamo_resume_in_)(.*)_at_\d+$")


@dataclass(frozen=True)
class HeldBuffer:
    """A storage that is made before a graph break and lives on behind its last use after it."""

    log: int
    compile_id: str
    """Of the region that made it: the one that the break ended."""
    into_compile_id: str
    buffer: str
    held_as: str
    """Its name in the region that uses it last."""
    storage_bytes: int
    graph: int
    into_graph: int
    last_kernel: str
    """Its last use there."""
    launches_after: int
    """So many launches ran there while it was held for nothing."""
    source: SourceLine | None


def held_across_breaks(trace: Trace) -> list[HeldBuffer]:
    """One for each storage of each pair of regions, as their first calls met it."""
    places: dict[int, GraphPlaces] = {}
    held: dict[tuple[int, int], HeldBuffer | None] = {}
    for row in sql.rows(trace, _HELD):
        made_by, call, storage = row[8], row[7], row[9]
        if _origin(row[3]) != _origin(row[4]):
            continue
        for graph in row[5:7]:
            places.setdefault(graph, graph_places(trace, graph))
        held[made_by, storage] = _held(trace, row, call, places)
    by_pair: dict[tuple[object, ...], HeldBuffer] = {}
    for found in held.values():
        if found is not None:
            by_pair.setdefault((found.graph, found.into_graph, found.buffer, found.held_as), found)
    return sorted(by_pair.values(), key=lambda one: -one.storage_bytes)


def _origin(function: str | None) -> str | None:
    """The function that a resumed one is the rest of."""
    match = _RESUMED.match(function or "")
    return match[1] if match else function


def _held(trace: Trace, row: sql.Row, call: int, places: dict[int, GraphPlaces]) -> HeldBuffer | None:
    log, compile_id, into_compile_id, _, _, graph, into_graph, _, _, _, buffer, held_as, size, dead, site = row
    launches = launches_of(trace, call)
    users = _users(trace, into_graph, held_as, places[into_graph])
    uses = [position for position, (_, user, _) in enumerate(launches) if user in users]
    if not uses or uses[-1] >= len(launches) - 1 or (dead is not None and dead <= uses[-1] + 1):
        return None
    last = launches[uses[-1]][1]
    return HeldBuffer(
        log=log,
        compile_id=compile_id,
        into_compile_id=into_compile_id,
        buffer=buffer,
        held_as=held_as,
        storage_bytes=size,
        graph=graph,
        into_graph=into_graph,
        last_kernel=places[into_graph].kernel(last) or "",
        launches_after=len(launches) - 1 - uses[-1],
        source=places[graph].source(places[graph].writer(buffer, site)),
    )


def _users(trace: Trace, graph: int, name: str, places: GraphPlaces) -> set[int]:
    """Launch sites that take the memory of `name`."""
    names = [name, *places.other_names(name)]
    found = sql.rows(
        trace,
        "SELECT DISTINCT a.site FROM arguments a JOIN sites s ON s.site = a.site WHERE s.graph = $1"
        " AND (list_contains($2, a.storage) OR list_contains($2, a.buffer))",
        [graph, names],
    )
    return {site for (site,) in found}
