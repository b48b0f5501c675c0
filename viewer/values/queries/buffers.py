"""Queries for the buffers of a graph: all names of their memory, and the statistics of all their versions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from stepscope.tracer.schema.constants import UNRECORDED
from stepscope.viewer.graphs.queries.graphs import first_names, graph_label, graph_row, memory_statements, site_rows
from stepscope.viewer.graphs.queries.program_names import program_names, statements_named
from stepscope.viewer.graphs.queries.tensors_in_force import IN_FORCE
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.same_bits import name_same_bits
from stepscope.viewer.values.queries.values import (
    COLUMNS,
    HEALTH_INDEX,
    LIMITS,
    NOT_RECORDED,
    StoredValue,
    chosen,
    has_values,
    value_rows,
)
from stepscope.viewer.values.rows import HEALTH, BufferDetail, BufferRow

_ARGUMENTS = """
    SELECT s.site, s.kernel, a.argument, a.role, a.buffer, a.storage, a.held
    FROM arguments a JOIN sites s ON s.site = a.site
    WHERE s.graph = ? AND coalesce(a.storage, a.buffer) IS NOT NULL ORDER BY s.local_site, a.argument
"""
_TENSORS = f"""
    SELECT t.site, t.argument, arg_max(t.dtype, t.local_call), arg_max(t.size, t.local_call)
    FROM {IN_FORCE} t JOIN sites s ON s.site = t.site
    WHERE s.graph = ? AND t.dtype <> '{UNRECORDED}' AND (t.item IS NULL OR t.item = 0) GROUP BY t.site, t.argument
"""
_HEALTH = f"""
    SELECT v.site, v.argument, count(*), min({HEALTH_INDEX}) FROM value_rows v JOIN sites s ON s.site = v.site
    WHERE s.graph = ? GROUP BY v.site, v.argument
"""
_VALUES = f"""
    SELECT v.value, {HEALTH_INDEX}
    FROM value_rows v JOIN (SELECT unnest($1) AS site, unnest($2) AS argument) a
      ON a.site = v.site AND a.argument = v.argument
    ORDER BY v.value
"""
_ROWS = f"""
    SELECT {COLUMNS}, l.start_ns, s.kernel FROM value_rows v
    LEFT JOIN launches l ON l.launch = v.launch LEFT JOIN sites s ON s.site = v.site
    WHERE v.value IN (SELECT unnest(?::BIGINT[])) ORDER BY v.value
"""
KEPT = 32
"""Number of graphs whose buffers an open trace keeps in memory."""
_OWN_MEMORY = ("allocate", "pool", "pool_member", "item")


@dataclass
class _Version(StoredValue):
    start_ns: int | None
    kernel: str | None


@dataclass
class _Buffer:
    """The memory behind one or several names."""

    names: set[str] = field(default_factory=set)
    arguments: list[tuple[int, int]] = field(default_factory=list)
    """Pairs (site, argument) in the order of launch sites."""
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """Buffer that has the memory at each of `arguments`: another one after each reuse."""
    sites: dict[int, str] = field(default_factory=dict)
    """Kernel of each launch site."""
    writers: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)
    is_input: bool = False


def buffer_rows(trace: Trace, graph: int) -> list[BufferRow]:
    """Return the buffers of a graph in the order of their first use."""
    buffers = trace.once(_buffers, graph, most=KEPT)
    return _rows(trace, graph, buffers)


def buffer_detail(trace: Trace, graph: int, buffer: str, limit: int = 2000) -> BufferDetail | None:
    """Return a buffer by any of its names, with at most `limit` versions; None if the graph has no such buffer."""
    buffers = trace.once(_buffers, graph, most=KEPT)
    name = buffer if buffer in buffers else next((n for n, found in buffers.items() if buffer in found.names), None)
    if name is None:
        return None
    found = buffers[name]
    (row,) = _rows(trace, graph, {name: found})
    sites, arguments = ([pair[i] for pair in found.arguments] for i in range(2))
    all_values = sql.rows(trace, _VALUES, [sites, arguments])
    shown = sql.records(_Version, trace, _ROWS, [chosen([(value, health) for value, health in all_values], limit)])
    versions = value_rows(trace, shown)
    name_same_bits(trace, versions)
    first_ns = min((version.start_ns for version in shown if version.start_ns is not None), default=0)
    memory = [m for m in memory_statements(trace, graph) if m.buffer in found.names or m.of in found.names]
    order = {site: place for place, site in enumerate(found.sites)}
    facts = graph_row(trace, graph)
    return BufferDetail(
        row=row,
        log=facts.log if facts is not None else 0,
        limit=LIMITS.get(row.dtype or (shown[0].dtype if shown else "")),
        versions=versions,
        steps=[version.step for version in shown],
        start_ns=[(version.start_ns or first_ns) - first_ns for version in shown],
        kernels=[version.kernel or "" for version in shown],
        names=[found.owners.get((version.site, version.argument), name) for version in shown],
        total_versions=len(all_values),
        memory=statements_named(trace, graph, memory),
        sites=sorted(site_rows(trace, list(found.sites)), key=lambda site: order[site.site]),
    )


def buffer_names(trace: Trace, graph: int) -> list[str]:
    """Return all names of the buffers of a graph that launches use; only these have a page."""
    return trace.once(_names, graph, most=KEPT)


def _names(trace: Trace, graph: int) -> list[str]:
    return sorted(set().union(*(found.names for found in trace.once(_buffers, graph, most=KEPT).values())))


def _buffers(trace: Trace, graph: int) -> dict[str, _Buffer]:
    """Return the buffers by the first name of their memory. Names in subgraphs include that of the function, so each
    name stands for one memory."""
    statements = memory_statements(trace, graph)
    same = first_names(statements)
    made = {m.buffer for m in statements if m.event in _OWN_MEMORY}
    views = {m.buffer: m.of for m in statements if m.event == "alias" and m.of is not None}
    buffers: defaultdict[str, _Buffer] = defaultdict(_Buffer)
    for site, kernel, argument, role, buffer, storage, held in sql.rows(trace, _ARGUMENTS, [graph]):
        name = str(storage or same.get(buffer, buffer))
        found = buffers[name]
        first_use = not found.arguments
        found.names |= {name, buffer or name}
        found.arguments.append((site, argument))
        found.owners[site, argument] = views.get(buffer, buffer) or name
        found.sites[site] = kernel
        if role != "out" and kernel not in found.readers:
            found.readers.append(kernel)
        if role != "in" and kernel not in found.writers:
            found.writers.append(kernel)
        if first_use:
            found.is_input = held == "input" if held else role != "out" and name not in made
    return buffers


def _by_argument(trace: Trace, statement: str, graph: int) -> dict[tuple[int, int], tuple[Any, Any]]:
    """Return the two facts that a statement gives about each argument of the launch sites of a graph."""
    return {(site, argument): (first, second) for site, argument, first, second in sql.rows(trace, statement, [graph])}


def _rows(trace: Trace, graph: int, buffers: dict[str, _Buffer]) -> list[BufferRow]:
    graph_facts = graph_row(trace, graph)
    if graph_facts is None:
        return []
    label = graph_label(graph, graph_facts.compile_id, graph_facts.phase)
    recorded = has_values(trace)
    health, tensors = (trace.once(_by_argument, statement, graph, most=KEPT) for statement in (_HEALTH, _TENSORS))
    names, result = program_names(trace, graph), []
    for name, found in buffers.items():
        seen = [health[key] for key in found.arguments if key in health]
        dtype, size = next((tensors[key] for key in found.arguments if key in tensors), (None, None))
        result.append(
            BufferRow(
                graph=graph,
                graph_label=label,
                buffer=name,
                is_input=found.is_input,
                written_by=found.writers,
                read_by=found.readers,
                dtype=dtype,
                size=sql.json_value(size),
                versions=sum(count for count, _ in seen) if recorded else None,
                health=HEALTH[min((worst for _, worst in seen), default=NOT_RECORDED)],
                program=names.get(name),
            )
        )
    return result
