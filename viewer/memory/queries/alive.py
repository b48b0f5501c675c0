"""Queries the storages that were alive at a position of a call or at a time of the run, and their origins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeVar

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.graphs.rows import InputKind, ProgramName, SourceLine
from stepscope.viewer.memory.queries.graph_index import (
    MeasuredCall,
    graph_index,
    launches_of,
    measured_call,
    schedule_of,
    subgraph_of,
)
from stepscope.viewer.memory.rows import ALIVE_KINDS, Alive, AliveGroup, AliveKind, AliveRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

K = TypeVar("K", bound=Hashable)
MOST_ROWS = 2000
_MOST_NAMES = 8
_UNKNOWN = ProgramName(None, None)
_RESULTS: dict[InputKind | None, AliveKind] = {"output": "output", "gradient": "gradient", "saved": "saved"}
_INPUTS: dict[InputKind | None, AliveKind] = {
    "parameter": "parameter", "buffer": "buffer", "input": "input", "gradient": "gradient", "saved": "saved",
}  # fmt: skip
_OF_CALL = """
    WITH here AS (
        SELECT s.storage, s.name, s.kind, s.storage_bytes, s.device, s.born, s.dead, s.site, s.is_owned,
               CASE WHEN s.met_as IS NULL THEN $local
                    WHEN s.calls_back IS NOT NULL THEN $local - s.calls_back ELSE s.met_in END AS by_call,
               coalesce(s.met_as, s.storage) AS by_storage
        FROM layout_storages s
        WHERE s.layout = $layout AND least(s.born, $last) <= $position
          AND (s.dead IS NULL OR least(s.dead, $last) > $position)
    )
    SELECT coalesce(m.call, $call), CASE WHEN r.storage IS NULL THEN h.storage ELSE h.by_storage END, h.name,
           h.storage_bytes, coalesce(h.device, r.device, 'unknown'), h.born, h.dead, h.is_owned,
           coalesce(r.name, h.name), CASE WHEN r.storage IS NULL THEN h.site ELSE r.site END, h.kind,
           coalesce(r.kind, h.kind), coalesce(l.graph, $graph), coalesce(m.step, $step), g.phase, v.last_step,
           v.met_by_backward, v.born_ns, v.died_ns
    FROM here h LEFT JOIN measured_calls m ON m.log = $log AND m.local_call = h.by_call
    LEFT JOIN layout_storages r ON r.layout = m.layout AND r.storage = h.by_storage
    LEFT JOIN layouts l ON l.layout = m.layout LEFT JOIN graphs g ON g.graph = l.graph
    LEFT JOIN survivors v ON v.call = m.call AND v.storage = h.by_storage
    ORDER BY h.storage_bytes DESC, h.storage
"""
_SURVIVORS = """
    SELECT v.call, v.storage, s.name, v.storage_bytes, v.device, v.made, s.site, l.graph, g.phase, m.step, v.last_step,
           v.met_by_backward, v.born_ns, v.died_ns
    FROM survivors v JOIN measured_calls m ON m.call = v.call JOIN layouts l ON l.layout = v.layout
    JOIN layout_storages s ON s.layout = v.layout AND s.storage = v.storage LEFT JOIN graphs g ON g.graph = l.graph
    WHERE v.log = $log AND v.born_ns <= $ns AND (v.died_ns IS NULL OR v.died_ns > $ns)
      AND v.made AND list_contains($calls, v.call)
"""
_INSIDE = """
    WITH RECURSIVE inside AS (
        SELECT call FROM calls WHERE parent = ?
        UNION SELECT c.call FROM calls c JOIN inside i ON c.parent = i.call
    )
    SELECT i.call FROM inside i JOIN measured_calls m ON m.call = i.call ORDER BY i.call
"""
_TEMPORARIES = """
    SELECT storage, name, storage_bytes, coalesce(device, 'unknown'), born, dead, site FROM layout_storages
    WHERE layout = $layout AND met_as IS NULL AND dead IS NOT NULL AND born <= $position AND dead > $position
"""


def alive_in_call(trace: Trace, call: int, position: int | None = None, limit: int = MOST_ROWS) -> Alive | None:
    """Return the storages alive in a call at launch `position`, else at the measured peak.

    Return None if the call's storages were not followed."""
    measured = measured_call(trace, call)
    if measured is None:
        return None
    launches, where = launches_of(trace, call), _Where(trace)
    schedule = schedule_of(trace, measured.graph, subgraph_of(measured.function))
    sites = where.places(measured.graph).sites
    position = measured.peak_position if position is None else position
    position = min(max(position, 0), len(launches))
    starts = [*(start_ns for _, _, start_ns in launches), measured.end_ns]
    values = {
        "call": call, "log": measured.log, "local": measured.local_call, "layout": measured.layout,
        "graph": measured.graph, "step": measured.step, "position": position, "last": len(launches),
    }  # fmt: skip
    found = [_Found(*row) for row in sql.rows(trace, _OF_CALL, values)]
    nodes = []
    if schedule is not None and position < len(launches):
        nodes = schedule.nodes_of(sites.get(launches[position][1]))
    at = next(iter(nodes), None)
    site = launches[position][1] if position < len(launches) else None
    rows = [_row_of_call(where, measured, one, starts, site) for one in found]
    at_ns = sql.number(trace, "SELECT ns FROM inner_bytes WHERE call = ? AND position = ?", [call, position])
    if at_ns is not None:
        rows = _with_inside(where, measured, rows, at_ns)
    snode = schedule.snode[at] if schedule and at is not None else None
    return _alive(rows, limit, measured.log, call, position, starts[position], snode, at)


def _with_inside(where: _Where, call: MeasuredCall, rows: list[AliveRow], ns: int) -> list[AliveRow]:
    """Replace the storages of calls inside `call` by those that were alive at `ns`."""
    inside = {number: measured_call(where.trace, number) for (number,) in sql.rows(where.trace, _INSIDE, [call.call])}
    rows = [row for row in rows if row.call not in inside]
    at = {"log": call.log, "ns": ns, "calls": list(inside)}
    rows += [_survivor(where, row) for row in sql.rows(where.trace, _SURVIVORS, at)]
    for one in inside.values():
        if one is not None and one.start_ns <= ns <= one.end_ns:
            rows += _temporaries(where, one, ns)
    return sorted(rows, key=lambda row: -row.storage_bytes)


class _Found(NamedTuple):
    """A storage of a call, as described by that call and by the first call that saw it."""

    call: int
    storage: int
    name: str
    storage_bytes: int
    device: str
    born: int
    dead: int | None
    is_owned: bool
    first_name: str
    site: int | None
    kind: str
    first_kind: str
    graph: int
    step: int
    phase: str | None
    last_step: int | None
    met_by_backward: bool | None
    born_ns: int | None
    died_ns: int | None


class _Where:
    """The indexes of the graphs that storages come from, each read once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.places = cache(partial(graph_index, trace))
        self.names = cache(partial(program_names, trace))


def _row_of_call(
    where: _Where, call: MeasuredCall, one: _Found, starts: Sequence[int], at_site: int | None
) -> AliveRow:
    made = one.first_kind != "input"
    places = where.places(one.graph)
    is_own = one.call == call.call
    name = where.places(call.graph).owner(one.name, at_site) if is_own and made else one.name
    site = None
    if made:
        owner = name if is_own else places.owner(one.first_name)
        site = places.writer(owner, one.site if owner == one.first_name else None)
    names = where.names(call.graph)
    known = names.get(name, _UNKNOWN)
    died_ns = one.died_ns
    if died_ns is None and one.dead is not None:
        died_ns = starts[min(one.dead, len(starts) - 1)]
    return AliveRow(
        call=one.call,
        storage=one.storage,
        name=name,
        program=known.name,
        other_names=where.places(call.graph).other_names(name),
        storage_bytes=one.storage_bytes,
        device=one.device,
        kind=_kind_in_call(call, one, made, known, any(other.kind in _RESULTS for other in names.values())),
        graph=call.graph,
        step=one.step,
        site=site,
        kernel=places.kernel(site),
        source=places.source(site),
        born_ns=starts[min(one.born, len(starts) - 1)] if one.born_ns is None else one.born_ns,
        died_ns=died_ns,
        is_base=not one.is_owned,
    )


def _kind_in_call(call: MeasuredCall, one: _Found, made: bool, known: ProgramName, all_known: bool) -> AliveKind:
    """Return the kind that PyTorch's records state, else the one that follows from the storage's lifetime. If all
    results of the graph are known, other storages that it leaves die with the frame of its call."""
    if one.kind == "input":
        if made and call.phase == "backward" and one.phase == "forward":
            return "saved"
        return _INPUTS.get(known.kind, "input" if made else "unknown")
    if one.dead is not None:
        return "temporary"
    if all_known:
        return _RESULTS.get(known.kind, "temporary")
    return "saved" if one.met_by_backward and one.phase == "forward" else "output"


def _temporaries(where: _Where, call: MeasuredCall, ns: int) -> list[AliveRow]:
    """Return the storages of `call` that are alive at `ns` and die in the call."""
    starts = [*(start_ns for _, _, start_ns in launches_of(where.trace, call.call)), call.end_ns]
    position = sum(start_ns <= ns for start_ns in starts[:-1]) - 1
    found = sql.rows(where.trace, _TEMPORARIES, {"layout": call.layout, "position": position})
    places, rows = where.places(call.graph), []
    for storage, name, size, device, born, dead, site in found:
        writer = places.writer(name, site)
        born_ns, died_ns = (starts[min(p, len(starts) - 1)] for p in (born, dead))
        rows.append(
            AliveRow(
                call.call, storage, name, None, places.other_names(name), size, device, "temporary", call.graph,
                call.step, writer, places.kernel(writer), places.source(writer), born_ns, died_ns, is_base=False,
            )
        )  # fmt: skip
    return rows


def _survivor(where: _Where, row: sql.Row) -> AliveRow:
    call, storage, name, size, device, _, site, graph, phase, step, _, backward, born_ns, died_ns = row
    places = where.places(graph)
    owner = places.owner(name)
    writer = places.writer(owner, site if owner == name else None)
    program = where.names(graph).get(owner, _UNKNOWN).name
    kind: AliveKind = "saved" if backward and phase == "forward" else "output"
    return AliveRow(
        call, storage, owner, program, places.other_names(owner), size, device, kind, graph, step,
        writer, places.kernel(writer), places.source(writer), born_ns, died_ns, is_base=False,
    )  # fmt: skip


def _alive(
    rows: Sequence[AliveRow],
    limit: int,
    log: int,
    call: int | None,
    position: int | None,
    ns: int,
    snode: str | None = None,
    snode_index: int | None = None,
) -> Alive:
    by_kind = sums((row.kind, row.storage_bytes) for row in rows)
    return Alive(
        log=log,
        call=call,
        position=position,
        ns=ns,
        snode=snode,
        snode_index=snode_index,
        rows=list(rows[:limit]),
        groups=_groups(rows),
        by_kind={kind: by_kind[kind] for kind in ALIVE_KINDS if kind in by_kind},
        storages=len(rows),
        storage_bytes=sum(row.storage_bytes for row in rows),
        base_bytes=sum(row.storage_bytes for row in rows if row.is_base),
    )


def sums(pairs: Iterable[tuple[K, int]]) -> dict[K, int]:
    """Return the sum of the sizes of each key."""
    found: defaultdict[K, int] = defaultdict(int)
    for key, size in pairs:
        found[key] += size
    return dict(found)


def _groups(rows: Sequence[AliveRow]) -> list[AliveGroup]:
    groups: defaultdict[tuple[AliveKind, SourceLine | None], list[AliveRow]] = defaultdict(list)
    for row in rows:
        groups[row.kind, row.source].append(row)
    result = [
        AliveGroup(
            kind,
            source,
            len(of),
            sum(row.storage_bytes for row in of),
            [row.program or row.name for row in of[:_MOST_NAMES]],
        )
        for (kind, source), of in groups.items()
    ]
    return sorted(result, key=lambda group: -group.storage_bytes)
