"""Queries buffers that a forward pass changes, and that its recomputation in the backward pass changes again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.memory.queries.kept_results import last_writer
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_STEPS = 3
_GRAPHS = """
    WITH again AS (
        SELECT log, unnest(from_json(call, '["BIGINT"]')) AS local_call FROM calls_in_backward
    ), ran AS (
        SELECT c.log, c.graph, c.step, c.start_ns, a.local_call IS NOT NULL AS is_again
        FROM calls c LEFT JOIN again a ON a.log = c.log AND a.local_call = c.local_call
    )
    SELECT g.log, split_part(g.compile_id, '/', 1) AS frame, g.graph, r.is_again, min(r.step), min(r.start_ns),
           count(DISTINCT r.step)
    FROM ran r JOIN graphs g ON g.graph = r.graph AND g.phase <> 'backward' AND g.compile_id IS NOT NULL
    WHERE g.log IN (SELECT log FROM again)
    GROUP BY ALL HAVING count(DISTINCT r.step) >= $1 ORDER BY g.log, g.graph
"""
_WRITTEN = """
    SELECT DISTINCT coalesce(a.storage, a.buffer, a.name) FROM sites s JOIN arguments a ON a.site = s.site
    WHERE s.graph = ? AND a.role <> 'in'
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
    """The number of steps in which it runs there."""
    names: tuple[str, ...]
    """In the program."""
    site: int | None
    """The last launch site of the graph that changes the first of them."""


def repeated_updates(trace: Trace) -> Iterator[RepeatedUpdate]:
    """Yield one row for each graph that runs in the backward pass."""
    if not sql.has_rows(trace, "calls_in_backward"):
        return
    found = sql.rows(trace, _GRAPHS, [LEAST_STEPS])
    in_forward: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for log, frame, graph, is_again, *_ in found:
        if not is_again:
            in_forward[log, frame] |= _changed_buffers(trace, graph).keys()
    for log, frame, graph, is_again, step, start_ns, steps in found:
        changed = _changed_buffers(trace, graph) if is_again else {}
        names = tuple(name for name in changed if name in in_forward[log, frame])
        if names:
            yield RepeatedUpdate(log, graph, step, start_ns, steps, names, last_writer(trace, graph, changed[names[0]]))


def _changed_buffers(trace: Trace, graph: int) -> dict[str, str]:
    """Return the names of the buffers of modules that a graph changes, by their names in the program."""
    known = program_names(trace, graph)
    written = sorted(name for (name,) in sql.rows(trace, _WRITTEN, [graph]) if name in known)
    return {found.name: one for one in written if (found := known[one]).kind == "buffer" and found.name is not None}
