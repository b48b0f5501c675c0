"""Queries outputs of custom operators that share the memory of an input, which generated code does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepscope.tracer.schema.constants import TORCH_NAMESPACES
from stepscope.viewer.graphs.queries.graphs import code_of_graph, memory_statements
from stepscope.viewer.graphs.queries.signatures import code_results
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CANDIDATES = """
    SELECT site FROM sites WHERE kind = 'fallback' AND starts_with(kernel, 'torch.ops.')
      AND NOT list_contains(?, split_part(kernel, '.', 3)) LIMIT 1
"""
_READERS = """
    SELECT DISTINCT s.kernel FROM sites s JOIN arguments a ON a.site = s.site JOIN graphs g ON g.graph = s.graph
    WHERE s.kind = 'fallback' AND starts_with(s.kernel, 'torch.ops.') AND a.role = 'in'
      AND NOT list_contains($1, split_part(s.kernel, '.', 3))
      AND ($2 IS NULL OR (g.log = $2 AND g.compile_id = $3))
    ORDER BY s.kernel
"""
_GRAPHS = "SELECT graph FROM graphs WHERE log = ? AND compile_id = ?"
# A tensor in its own memory is a storage of the call, named like the output. A storage of other code, such as that of
# torch.from_numpy(), may still lie in the memory of an input. Both exist when the operator returns, so addresses tell.
_ALIASES = """
    WITH called AS (
        SELECT s.site, s.log, s.graph, s.kernel, a.argument, a.buffer FROM sites s
        JOIN arguments a ON a.site = s.site AND a.role = 'out' AND a.buffer = json_extract_string(s.outputs, '$[0]')
        WHERE s.kind = 'fallback' AND json_array_length(s.outputs) = 1 AND starts_with(s.kernel, 'torch.ops.')
          AND NOT list_contains($1, split_part(s.kernel, '.', 3))
          AND NOT EXISTS (FROM arguments o WHERE o.site = s.site AND o.role = 'inout')
          AND EXISTS (FROM layouts l WHERE l.graph = s.graph AND l.storages > 0 AND l.calls > 0)
          AND EXISTS (FROM launches x WHERE x.site = s.site)
    ), version AS (
        SELECT version_site AS site, version_argument AS argument, version_item AS item, min(storage) AS memory
        FROM arguments WHERE version_item IS NOT NULL AND version_site IN (SELECT site FROM called) GROUP BY ALL
    ), member AS (
        SELECT site, argument, item FROM version
        UNION SELECT site, argument, item FROM value_rows
        WHERE item IS NOT NULL AND site IN (SELECT site FROM called)
    ), returned AS (
        SELECT c.*, m.item, CASE WHEN m.item IS NULL THEN c.buffer ELSE c.buffer || '[' || m.item || ']' END AS output,
               CASE WHEN m.item IS NULL THEN c.buffer ELSE v.memory END AS memory
        FROM called c LEFT JOIN member m ON m.site = c.site AND m.argument = c.argument
        LEFT JOIN version v ON v.site = m.site AND v.argument = m.argument AND v.item = m.item
    ), hidden AS (
        FROM returned r WHERE NOT EXISTS (
            FROM layouts l JOIN layout_storages n ON n.layout = l.layout WHERE l.graph = r.graph AND n.name = r.output
        )
    ), given AS (
        SELECT r.site, r.output, coalesce(a.storage, a.buffer, a.name) AS input, t.storage_address, t.storage_bytes,
               t.local_call, v.digest
        FROM returned r JOIN arguments a ON a.site = r.site AND a.role = 'in'
        LEFT JOIN tensors t ON t.site = a.site AND t.argument = a.argument
        LEFT JOIN (SELECT DISTINCT site, argument, item, digest FROM value_rows WHERE numel > 0) v
          ON v.site = a.version_site AND v.argument = a.version_argument AND v.item IS NOT DISTINCT FROM a.version_item
    ), later AS (
        SELECT r.site, r.output, t.storage_address, t.storage_bytes, t.local_call FROM returned r
        JOIN arguments a ON coalesce(a.storage, a.buffer) = r.memory AND a.site > r.site
        JOIN sites u ON u.site = a.site AND u.graph = r.graph
        JOIN tensors t ON t.site = a.site AND t.argument = a.argument
    ), same AS (
        SELECT DISTINCT g.site, g.output, g.input FROM given g
        WHERE EXISTS (FROM later l WHERE l.site = g.site AND l.output = g.output
                        AND l.storage_address < g.storage_address + g.storage_bytes
                        AND g.storage_address < l.storage_address + l.storage_bytes AND l.local_call = g.local_call)
           OR EXISTS (FROM hidden r JOIN value_rows v ON v.site = r.site AND v.argument = r.argument
                       AND v.item IS NOT DISTINCT FROM r.item
                      WHERE r.site = g.site AND r.output = g.output AND v.digest = g.digest AND v.numel > 0
                        AND v.min IS DISTINCT FROM v.max)
    ), shared AS (SELECT site, output, min(input) AS input FROM same GROUP BY site, output HAVING count(*) = 1)
    SELECT r.log, r.graph, r.site, r.kernel, r.output, r.memory, s.input,
           (SELECT min(launch) FROM launches x WHERE x.site = r.site) AS launch,
           (SELECT arg_min(step, launch) FROM launches x WHERE x.site = r.site) AS step,
           EXISTS (FROM layouts l JOIN layout_storages n ON n.layout = l.layout
                   WHERE l.graph = r.graph AND n.name = s.input AND n.kind = 'input' AND NOT n.is_owned) AS is_kept
    FROM returned r JOIN shared s ON s.site = r.site AND s.output = r.output ORDER BY launch, r.output
"""
_USES = """
    SELECT a.site, coalesce(a.storage, a.buffer) AS memory, a.role, s.kind = 'extern'
    FROM arguments a JOIN sites s ON s.site = a.site
    WHERE s.graph = ? AND a.site > ? ORDER BY a.site
"""


@dataclass(frozen=True)
class HiddenAlias:
    """The output of a custom operator that shares the memory of an input."""

    log: int
    graph: int
    site: int
    kernel: str
    output: str
    memory: str | None
    """The name of the output's memory in the generated code; None if nothing uses it."""
    input: str
    launch: int
    """The first launch of the operator."""
    step: int
    is_kept: bool
    """Whether the input is memory of the caller, which the graph must not overwrite."""
    overwritten_by: int | None = None
    """The site of the first later launch that writes one of the two while the other is needed; None if none does."""


def custom_operators(trace: Trace, log: int | None = None, compile_id: str | None = None) -> list[str]:
    """Return the custom operators that read a tensor which they do not declare to change; with `log` those of the
    graphs of one compile."""
    found = sql.rows(trace, _READERS, [list(TORCH_NAMESPACES), log, compile_id])
    return [operator_name(kernel) for (kernel,) in found]


def aliasing_operators(trace: Trace, log: int, compile_id: str | None) -> list[str]:
    """Return the custom operators that return the memory of an input in a graph of one compile."""
    if not (found := [one for one in hidden_aliases(trace) if one.log == log]):
        return []
    graphs = {graph for (graph,) in sql.rows(trace, _GRAPHS, [log, compile_id])}
    return sorted({operator_name(one.kernel) for one in found if one.graph in graphs})


def operator_name(kernel: str) -> str:
    """Return the name of an operator that a launch calls: ``my.stats`` for ``torch.ops.my.stats.default``."""
    return kernel.removeprefix("torch.ops.").removesuffix(".default")


def is_custom(kernel: str) -> bool:
    """Return whether a launch calls an operator that does not belong to PyTorch: ``torch.ops.my.stats.default``."""
    return kernel.startswith("torch.ops.") and kernel.split(".")[2] not in TORCH_NAMESPACES


def hidden_aliases(trace: Trace) -> list[HiddenAlias]:
    """Return the outputs in order of time."""
    return [*trace.once(_read)]


def _read(trace: Trace) -> list[HiddenAlias]:
    if sql.row(trace, _CANDIDATES, [list(TORCH_NAMESPACES)]) is None:  # as in most traces
        return []
    found = sql.records(HiddenAlias, trace, _ALIASES, [list(TORCH_NAMESPACES)])
    return [replace(one, overwritten_by=_overwriter(trace, one)) for one in found]


def _overwriter(trace: Trace, one: HiddenAlias) -> int | None:
    uses = sql.rows(trace, _USES, [one.graph, one.site])
    of = {row.buffer: row.of for row in memory_statements(trace, one.graph) if row.of is not None}
    names = code_results(code_of_graph(trace, one.graph) or "")
    results = {_memory(name, of, (one.input, one.memory)) for name in names if name is not None}

    def is_needed(memory: str | None, writer: int, reads_first: bool) -> bool:
        if memory in results or (memory == one.input and one.is_kept):
            return True
        first = writer + 1 if reads_first else writer
        return any(site >= first and name == memory and role != "out" for site, name, role, _ in uses)

    other = {one.input: one.memory, one.memory: one.input}
    # A generated kernel may read each element before it overwrites it, unlike an operator such as a matrix product.
    writes = [(site, name, role != "out" or not is_extern) for site, name, role, is_extern in uses if role != "in"]
    found = (site for site, name, reads_first in writes if name in other and is_needed(other[name], site, reads_first))
    return next(found, None)


def _memory(name: str, of: dict[str, str], known: Sequence[str | None]) -> str:
    """Return the name of the memory in which a result lies."""
    seen: set[str] = set()
    while name not in known and name in of and name not in seen:
        seen.add(name)
        name = of[name]
    return name
