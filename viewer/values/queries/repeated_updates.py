"""Queries buffers that a forward pass changes, and that its recomputation in the backward pass changes again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.memory.queries.identity import FIRST_CALL
from stepscope.viewer.memory.queries.kept_results import last_writer
from stepscope.viewer.memory.queries.recomputed_runs import AGAIN
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_STEPS = 3
_GRAPHS = f"""
    WITH again AS ({AGAIN}), ran AS (
        SELECT c.graph, c.step, c.start_ns, a.local_call IS NOT NULL AS is_again
        FROM calls c LEFT JOIN again a ON a.log = c.log AND a.local_call = c.local_call
    )
    SELECT g.graph, g.log, min(r.step) FILTER (r.is_again), min(r.start_ns) FILTER (r.is_again)
    FROM ran r JOIN graphs g ON g.graph = r.graph AND g.phase <> 'backward' AND g.compile_id IS NOT NULL
    WHERE g.log IN (SELECT log FROM again)
    GROUP BY g.graph, g.log HAVING count(DISTINCT r.step) >= $1 ORDER BY g.log, g.graph
"""
# Modules of one class share their graphs, so that only the memory tells whether both calls write the same buffer.
_REPEATED = f"""
    WITH again AS ({AGAIN}), written AS (SELECT unnest($2) AS graph, unnest($3) AS name), used AS (
        SELECT m.call, m.log, m.step, g.graph, split_part(g.compile_id, '/', 1) AS frame, s.name,
               a.local_call IS NOT NULL AS is_again, {FIRST_CALL} AS by_call,
               coalesce(s.met_as, s.storage) AS by_storage
        FROM written w JOIN graphs g ON g.graph = w.graph JOIN calls c ON c.graph = w.graph
        JOIN measured_calls m ON m.call = c.call
        JOIN layout_storages s ON s.layout = m.layout AND s.kind = 'input' AND s.name = w.name
        LEFT JOIN again a ON a.log = m.log AND a.local_call = m.local_call
    ), ordered AS (
        SELECT *, lag(is_again) OVER (PARTITION BY log, frame, by_call, by_storage ORDER BY call) AS follows_again
        FROM used
    )
    SELECT graph, name, count(DISTINCT step) FROM ordered WHERE is_again AND NOT follows_again
    GROUP BY graph, name HAVING count(DISTINCT step) >= $1
"""
# What a kernel only writes, such as a cache, has the same content after it is written twice.
_WRITTEN = """
    SELECT coalesce(a.storage, a.buffer, a.name) AS memory FROM sites s JOIN arguments a ON a.site = s.site
    WHERE s.graph = ? AND list_contains(['cpp', 'triton'], s.kind)
    GROUP BY s.site, memory HAVING bool_or(a.role <> 'in') AND bool_or(a.role <> 'out')
"""


@dataclass(frozen=True)
class RepeatedUpdate:
    """Buffers of modules that one frame changes in the forward pass and again in the backward pass."""

    log: int
    graph: int
    """The graph that runs in the backward pass."""
    step: int
    start_ns: int
    steps: int
    """The number of steps in which it changes there what the forward pass has changed."""
    names: tuple[str, ...]
    """In the program."""
    site: int | None
    """The last launch site of the graph that changes the first of them."""


def repeated_updates(trace: Trace) -> Iterator[RepeatedUpdate]:
    """Yield one row for each graph that runs in the backward pass."""
    if not sql.has_rows(trace, "calls_in_backward"):
        return
    found = sql.rows(trace, _GRAPHS, [LEAST_STEPS])
    changed = {graph: _changed_buffers(trace, graph) for graph, *_ in found}
    written = [(graph, name) for graph, names in changed.items() for name in names.values()]
    repeated = _repeated(trace, written) if written else {}
    for graph, log, step, start_ns in found:
        steps = {name: repeated[graph, one] for name, one in changed[graph].items() if (graph, one) in repeated}
        if steps:
            site = last_writer(trace, graph, changed[graph][next(iter(steps))])
            yield RepeatedUpdate(log, graph, step, start_ns, max(steps.values()), tuple(steps), site)


def _repeated(trace: Trace, written: list[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Return the number of steps in which a graph, in the backward pass, writes an input that was written before it."""
    graphs, names = [graph for graph, _ in written], [name for _, name in written]
    return {(graph, name): steps for graph, name, steps in sql.rows(trace, _REPEATED, [LEAST_STEPS, graphs, names])}


def _changed_buffers(trace: Trace, graph: int) -> dict[str, str]:
    """Return the names of the buffers of modules that a kernel of a graph reads and changes, by their names in the
    program."""
    known = program_names(trace, graph)
    written = sorted({name for (name,) in sql.rows(trace, _WRITTEN, [graph]) if name in known})
    return {found.name: one for one in written if (found := known[one]).kind == "buffer" and found.name is not None}
