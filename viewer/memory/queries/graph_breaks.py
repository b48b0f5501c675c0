"""Queries tensors that a graph break keeps alive after their last use in the resumed function.

The origin of a tensor from the compiled region before the break is certain. A tensor that the resumed function is the
first to use comes from the code between the regions or from the caller; a log does not tell these two apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_index import graph_index, launches_of, sites_using
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MadeBy = Literal["compiled region", "between the regions, or the caller's"]
_HELD = """
    SELECT a.log, ga.compile_id, gb.compile_id AS into_compile_id, ca.function, cb.function AS into_function, al.graph,
           b.graph AS into_graph, b.first_call, a.call, r.storage, r.name AS buffer, s.name AS held_as, s.storage_bytes,
           s.dead, r.site, m.step, a.local_call AS made_in, m.local_call AS met_in, s.storage AS met_as
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
_CAME_IN = """
    SELECT m.log, gb.compile_id, cb.function, b.graph, m.call, m.local_call, m.step, c.thread, s.storage, s.name,
           s.storage_bytes
    FROM layouts b JOIN measured_calls m ON m.call = b.first_call JOIN calls c ON c.call = m.call
    JOIN layout_storages s ON s.layout = b.layout AND s.kind = 'input' AND s.met_as IS NULL AND s.storage_bytes > 0
    JOIN survivors v ON v.call = m.call AND v.storage = s.storage AND NOT v.met_by_backward AND v.last_step = m.step
      AND v.died_ns IS NOT NULL AND v.died_call IS NULL
    JOIN graphs gb ON gb.graph = b.graph JOIN compiles cb ON cb.log = gb.log AND cb.compile_id = gb.compile_id
    WHERE starts_with(cb.function, 'torch_dynamo_resume_in_') AND gb.phase IS DISTINCT FROM 'backward'
    ORDER BY m.local_call, s.storage
"""
_BEFORE = """
    SELECT g.compile_id FROM measured_calls m JOIN calls c ON c.call = m.call
    JOIN graphs g ON g.graph = c.graph JOIN compiles f ON f.log = g.log AND f.compile_id = g.compile_id
    WHERE m.log = ? AND m.step = ? AND m.local_call < ? AND c.thread IS NOT DISTINCT FROM ?
      AND g.phase IS DISTINCT FROM 'backward' AND g.compile_id <> ?
      AND regexp_replace(f.function, '^torch_dynamo_resume_in_(.*)_at_[0-9]+$', '\\1') = ?
    ORDER BY m.local_call DESC LIMIT 1
"""
_MET_LATER = """
    SELECT 1 FROM measured_calls m JOIN layout_storages s ON s.layout = m.layout
    WHERE m.log = ? AND m.step = ? AND m.local_call > ? AND m.local_call - s.calls_back = ? AND s.met_as = ? LIMIT 1
"""
_RESUMED = re.compile(r"^(?:torch_dynamo_resume_in_)(.*)_at_\d+$")


@dataclass(frozen=True)
class HeldBuffer:
    """A storage that exists before the function is resumed and stays alive after its last use there."""

    log: int
    compile_id: str
    """Compile id of the region before the break, which created the storage if `made_by` is "compiled region"."""
    into_compile_id: str
    buffer: str
    held_as: str
    """Name of the storage in the region that uses it last."""
    program: str | None
    """Name of the variable in the program; None if it is unknown."""
    storage_bytes: int
    made_by: MadeBy
    graph: int | None
    """Graph that created the storage; None if no compiled graph did."""
    into_graph: int
    last_kernel: str
    """Kernel that used the storage last there."""
    launches_after: int
    """Number of launches there after the last use, while the storage stayed alive."""
    source: SourceLine | None


class _Held(NamedTuple):
    """A storage that `call` created and that the first call of a resumed function used."""

    log: int
    compile_id: str
    into_compile_id: str
    function: str
    into_function: str
    graph: int
    into_graph: int
    first_call: int
    call: int
    storage: int
    buffer: str
    held_as: str
    storage_bytes: int
    dead: int | None
    site: int | None
    step: int
    made_in: int
    met_in: int
    met_as: int


def held_across_breaks(trace: Trace) -> list[HeldBuffer]:
    """Return one row per storage and pair of regions, from their first calls, largest first."""
    held: dict[tuple[int, int], HeldBuffer | None] = {}
    for row in sql.records(_Held, trace, _HELD):
        if _origin(row.function) != _origin(row.into_function):
            continue
        held[row.call, row.storage] = _held(trace, row)
    by_pair: dict[tuple[object, ...], HeldBuffer] = {}
    for found in held.values():
        if found is not None:
            by_pair.setdefault((found.graph, found.into_graph, found.buffer, found.held_as), found)
    for found in _came_in(trace):
        by_pair.setdefault((found.compile_id, found.into_graph, found.held_as), found)
    return sorted(by_pair.values(), key=lambda one: -one.storage_bytes)


def _origin(function: str | None) -> str | None:
    """Return the original function of a resume function."""
    match = _RESUMED.match(function or "")
    return match[1] if match else function


def _held(trace: Trace, row: _Held) -> HeldBuffer | None:
    last = _last_use(trace, row.first_call, row.into_graph, row.held_as)
    if last is None or (row.dead is not None and row.dead <= last.position + 1):
        return None
    if _met_later(trace, row.log, row.step, row.met_in, [(row.made_in, row.storage), (row.met_in, row.met_as)]):
        return None
    made_in = graph_index(trace, row.graph)
    kept = ("log", "compile_id", "into_compile_id", "buffer", "held_as", "storage_bytes", "graph", "into_graph")
    return HeldBuffer(
        **{name: getattr(row, name) for name in kept},
        program=name_in_program(trace, row.into_graph, row.held_as),
        made_by="compiled region",
        last_kernel=last.kernel,
        launches_after=last.launches_after,
        source=made_in.source(made_in.writer(row.buffer, row.site)),
    )


def _came_in(trace: Trace) -> list[HeldBuffer]:
    """Return the storages that the resumed function was the first to use."""
    found = []
    for row in sql.rows(trace, _CAME_IN):
        log, into_compile_id, function, graph, call, local_call, step, thread, storage, name, size = row
        last = _last_use(trace, call, graph, name)
        if last is None or _met_later(trace, log, step, local_call, [(local_call, storage)]):
            continue
        broken = sql.row(trace, _BEFORE, [log, step, local_call, thread, into_compile_id, _origin(function)])
        if broken is None:
            continue
        held = HeldBuffer(
            log=log,
            compile_id=broken[0],
            into_compile_id=into_compile_id,
            buffer=name,
            held_as=name,
            program=name_in_program(trace, graph, name),
            storage_bytes=size,
            made_by="between the regions, or the caller's",
            graph=None,
            into_graph=graph,
            last_kernel=last.kernel,
            launches_after=last.launches_after,
            source=None,
        )
        found.append(held)
    return found


def _met_later(trace: Trace, log: int, step: int, after: int, known: list[tuple[int, int]]) -> bool:
    """Return whether a later call of the step uses the storage, given as (call, storage in that call) pairs."""
    return any(sql.row(trace, _MET_LATER, [log, step, after, *one]) for one in known)


class _LastUse(NamedTuple):
    position: int
    kernel: str
    launches_after: int


def _last_use(trace: Trace, call: int, graph: int, name: str) -> _LastUse | None:
    """Return the last use of an input of a call; None if nothing used it or no launch followed."""
    launches, places = launches_of(trace, call), graph_index(trace, graph)
    users = sites_using(trace, graph, name)
    uses = [position for position, (_, user, _) in enumerate(launches) if user in users]
    if not uses or uses[-1] >= len(launches) - 1:
        return None
    kernel = places.kernel(launches[uses[-1]][1])
    return _LastUse(uses[-1], kernel or "", len(launches) - 1 - uses[-1])
