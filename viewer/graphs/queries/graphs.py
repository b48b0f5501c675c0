"""Graphs: the list, and one graph with its launch sites, memory statements and generated code."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from stepscope.tracer.schema.constants import UNRECORDED
from stepscope.viewer.graphs.queries.program_names import statements_named, with_program_names
from stepscope.viewer.graphs.queries.scalars import scalars_of
from stepscope.viewer.graphs.queries.subgraph_calls import subgraph_calls
from stepscope.viewer.graphs.queries.tensors_in_force import IN_FORCE
from stepscope.viewer.graphs.rows import (
    ArgumentRow,
    GraphDetail,
    GraphRow,
    MemoryStatementRow,
    SiteRow,
    SourceLine,
)
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_GRAPHS = """
    WITH ran AS (
        SELECT c.graph, count(*) FILTER (p.graph IS DISTINCT FROM c.graph) AS calls, sum(c.launches) AS launches,
               sum(c.duration_ns) FILTER (p.graph IS DISTINCT FROM c.graph) AS duration_ns
        FROM calls c LEFT JOIN calls p ON p.call = c.parent GROUP BY c.graph
    )
    SELECT g.graph, g.log, g.local_graph, g.wrapper_key, g.compile_id, g.aot_id, g.phase, g.cached, g.dynamic,
           g.launch_sites,
           CASE WHEN g.launch_sites IS NOT NULL THEN coalesce(ran.calls, 0) ELSE ran.calls END AS calls,
           CASE WHEN g.launch_sites IS NOT NULL THEN coalesce(ran.launches, 0) ELSE ran.launches END AS launches,
           ran.duration_ns, g.not_recorded, g.output_code
    FROM graphs g LEFT JOIN ran ON ran.graph = g.graph
"""
_SITES = """
    SELECT s.site, s.graph, s.local_site, s.function, s.line, s.kernel, s.kind, s.operator, s.handle,
           s.snodes, s.outputs, s.source_nodes, s.aten, s.fx_nodes, s.stacks, ran.launches, ran.duration_ns
    FROM sites s LEFT JOIN (
        SELECT site, count(*) AS launches, sum(duration_ns) AS duration_ns
        FROM launches WHERE list_contains($1, site) GROUP BY site
    ) ran ON ran.site = s.site
    WHERE list_contains($1, s.site) ORDER BY s.site
"""
_TENSORS = f"""
    WITH held AS (
        SELECT t.* FROM {IN_FORCE} t
        WHERE list_contains($1, t.site)
          AND ($2 IS NULL OR t.local_call <= $2)
        QUALIFY rank() OVER (PARTITION BY t.site, t.argument ORDER BY t.local_call DESC, t.place DESC) = 1
    )
    SELECT h.site, h.argument, h.item, h.dtype, h.size, h.stride, h.device, h.storage_offset AS "offset",
           h.storage_bytes, h.storage_address AS storage, c.call, c.step
    FROM held h LEFT JOIN calls c ON c.log = h.log AND c.local_call = h.seen_call
    ORDER BY h.site, h.argument, h.item
"""
_CHANGES = f"""
    SELECT DISTINCT t.local_call FROM {IN_FORCE} t WHERE t.site IN (SELECT site FROM sites WHERE graph = ?) ORDER BY 1
"""
KEPT = 64
"""Number of graphs, and of readings of all launch sites of a graph, that an open trace keeps in memory."""
_TOO_MANY = "not recorded: the launch site has had too many sizes"
_LISTS = ("snodes", "outputs", "source_nodes", "aten", "fx_nodes", "stacks")
NEVER = -1
"""A call before all calls."""
_SAME_MEMORY = ("reuse", "alias")


def list_graphs(trace: Trace, most: int | None = None) -> list[GraphRow]:
    """Return all graphs, or the first `most`, in the order in which they were loaded."""
    return [*trace.once(_list_graphs, most, most=2)]


def _list_graphs(trace: Trace, most: int | None) -> list[GraphRow]:
    return _rows(trace, sql.records(GraphRow, trace, f"{_GRAPHS} ORDER BY g.log, g.graph LIMIT ?", [most]))


def graph_row(trace: Trace, graph: int) -> GraphRow | None:
    return trace.once(_graph_row, graph, most=KEPT)


def _graph_row(trace: Trace, graph: int) -> GraphRow | None:
    return next(iter(_rows(trace, sql.records(GraphRow, trace, f"{_GRAPHS} WHERE g.graph = ?", [graph]))), None)


def graphs_of_compile(trace: Trace, log: int, compile_id: str) -> list[GraphRow]:
    of_compile = f"{_GRAPHS} WHERE g.log = ? AND g.compile_id = ? ORDER BY g.graph"
    return _rows(trace, sql.records(GraphRow, trace, of_compile, [log, compile_id]))


def _rows(trace: Trace, found: Sequence[GraphRow]) -> list[GraphRow]:
    calls = subgraph_calls(trace).of_graph
    return [_kernels_apart(row, calls[row.graph]) for row in found]


def _kernels_apart(row: GraphRow, calls: int) -> GraphRow:
    return replace(row, launches=(row.launches or 0) - calls, subgraph_calls=calls) if calls else row


def graph_detail(trace: Trace, graph: int) -> GraphDetail | None:
    """Return a graph, or None if there is none with that id."""
    row = graph_row(trace, graph)
    if row is None:
        return None
    sites = [site for (site,) in sql.rows(trace, "SELECT site FROM sites WHERE graph = ?", [graph])]
    named = with_program_names(trace, site_rows(trace, sites))
    memory = statements_named(trace, graph, memory_statements(trace, graph))
    return GraphDetail(row, named, memory, wrapper_code(trace, row))


def has_graphs(trace: Trace) -> bool:
    """Return whether Inductor compiled a graph, or loaded one from a cache, in a Python process."""
    return bool(sql.number(trace, "SELECT count(*) FROM graphs JOIN logs USING (log) WHERE torch_version IS NOT NULL"))


def names_packages(trace: Trace) -> bool:
    """Return whether a record is about AOTInductor."""
    return bool(sql.number(trace, "SELECT count(*) FROM records WHERE event ILIKE '%aoti%' OR name ILIKE '%aoti%'"))


def graph_label(graph: int, compile_id: str | None, phase: str | None) -> str:
    """Return a label such as ``0/0 forward``."""
    return " ".join(part for part in (compile_id or f"graph {graph}", phase) if part)


def wrapper_code(trace: Trace, graph: GraphRow) -> str | None:
    """Return the source of the generated wrapper, or None if no log holds it. A forked child has its parent's."""
    code = graph.output_code
    if code is None and graph.wrapper_key is not None:
        code = trace.once(_code_of_key, graph.wrapper_key, most=KEPT)
    return None if code is None else trace.payload(int(code)).decode("utf-8", "replace")


def _code_of_key(trace: Trace, wrapper_key: str) -> int | None:
    found: int | None = sql.number(trace, "SELECT min(output_code) FROM graphs WHERE wrapper_key = ?", [wrapper_key])
    return found


def code_of_graph(trace: Trace, graph: int) -> str | None:
    """Return the source of the generated wrapper of the graph with this id, or None if no log holds it."""
    row = graph_row(trace, graph)
    return None if row is None else wrapper_code(trace, row)


def operands_left_out(trace: Trace, graph: int) -> str | None:
    """Return a remark on tensors that launches of a graph may read although no argument names them."""
    found = sql.row(trace, "SELECT operands_left_out FROM graphs WHERE graph = ?", [graph])
    return found[0] if found else None


def memory_statements(trace: Trace, graph: int) -> list[MemoryStatementRow]:
    return sql.records(
        MemoryStatementRow,
        trace,
        'SELECT event, buffer, function, line, of_buffer AS "of" FROM memory_statements WHERE graph = ? ORDER BY line',
        [graph],
    )


def site_in_call(trace: Trace, graph: int, site: int, local_call: int) -> SiteRow:
    """Return a launch site of a graph with the tensors that hold in a call. Launches are looked at one after the other,
    so all sites of their graph are read at once, and again only for a call in which another tensor was seen."""
    changes = trace.once(_changes, graph, most=KEPT)
    at = bisect_right(changes, local_call)
    return trace.once(_sites_of_graph, graph, changes[at - 1] if at else NEVER, most=KEPT)[site]


def _changes(trace: Trace, graph: int) -> list[int]:
    """Return the calls from which on another tensor of the graph holds."""
    return [call for (call,) in sql.rows(trace, _CHANGES, [graph])] if sql.has_rows(trace, "tensors") else []


def sites_of_graph(trace: Trace, graph: int) -> list[int]:
    """Return the launch sites of a graph in their order."""
    return [site for (site,) in sql.rows(trace, "SELECT site FROM sites WHERE graph = ? ORDER BY site", [graph])]


def _sites_of_graph(trace: Trace, graph: int, local_call: int) -> dict[int, SiteRow]:
    rows = _site_rows(trace, sites_of_graph(trace, graph), local_call)
    return {row.site: row for row in with_program_names(trace, rows)}


def site_rows(trace: Trace, sites: Sequence[int], call: int | None = None) -> list[SiteRow]:
    """Return launch sites with their arguments. Tensors are those seen last, or those that hold in `call`."""
    of_call = "SELECT local_call FROM calls WHERE call = ?"
    return _site_rows(trace, sites, None if call is None else sql.number(trace, of_call, [call]))


def _site_rows(trace: Trace, sites: Sequence[int], local_call: int | None) -> list[SiteRow]:
    arguments, scalars = _arguments(trace, sites, local_call), scalars_of(trace, sites)
    rows = []
    for row in sql.named(trace, _SITES, [list(sites)], json=_LISTS):
        row["fx_nodes"] = list(dict.fromkeys(row["fx_nodes"] or []))
        row["stacks"] = [[SourceLine(**frame) for frame in stack] for stack in row["stacks"]]
        rows.append(SiteRow(**row, arguments=arguments[row["site"]], scalars=scalars[row["site"]]))
    return rows


def before_return(site: SiteRow) -> SiteRow:
    """Return a launch site without the tensors that its launch would have returned."""
    bound = len(site.arguments) - len(site.outputs)
    arguments = [
        row if place < bound else replace(row, tensors=[], unseen="not created yet: the launch did not return")
        for place, row in enumerate(site.arguments)
    ]
    return replace(site, arguments=arguments)


def innermost(stacks: str | None) -> SourceLine | None:
    """Return the innermost line of a site's first stack, given as JSON, or None."""
    return next((SourceLine(**stack[-1]) for stack in sql.json_value(stacks) or () if stack), None)


def first_names(statements: Iterable[MemoryStatementRow]) -> dict[str, str]:
    """Return the first name of the memory of each name that reuses or aliases another."""
    first: dict[str, str] = {}
    for statement in statements:
        if statement.event in _SAME_MEMORY and statement.of is not None:
            first.setdefault(statement.buffer, first.get(statement.of, statement.of))
    return first


def _arguments(trace: Trace, sites: Sequence[int], local_call: int | None) -> defaultdict[int, list[ArgumentRow]]:
    tensors = _tensors(trace, sites, local_call)
    found = sql.named(
        trace,
        "SELECT site, argument, name, role, buffer, parameter, storage, held FROM arguments"
        " WHERE list_contains($1, site) ORDER BY site, argument",
        [list(sites)],
    )
    rows: defaultdict[int, list[ArgumentRow]] = defaultdict(list)
    for row in found:
        site = row.pop("site")
        told = tensors[site, row["argument"]]
        seen = [tensor for tensor in told if tensor["dtype"] != UNRECORDED]
        rows[site].append(ArgumentRow(**row, tensors=seen, unseen=_TOO_MANY if told and not seen else None))
    return rows


def _tensors(
    trace: Trace, sites: Sequence[int], local_call: int | None
) -> defaultdict[tuple[int, int], list[dict[str, Any]]]:
    """Return the tensors by site and argument, from the last call not after `local_call` that recorded
    them."""
    rows: defaultdict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    if not sql.has_rows(trace, "tensors"):
        return rows
    for tensor in sql.named(trace, _TENSORS, [list(sites), local_call], json=("size", "stride")):
        rows[tensor.pop("site"), tensor.pop("argument")].append(tensor)
    return rows
