"""Queries for kernels by name over all graphs: the list, and the launches of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stepscope.tracer.schema.statistics import NONFINITE, STATISTICS
from stepscope.viewer.graphs.queries.graphs import graph_label, graph_row, list_graphs, site_rows, wrapper_code
from stepscope.viewer.graphs.queries.kernel_code import CodePart, cut
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import HEALTH_INDEX, NOT_RECORDED, has_values
from stepscope.viewer.values.rows import HEALTH, Health, KernelArgument, KernelLaunch, Spread

_KERNELS = f"""
    WITH ran AS (
        SELECT site, count(*) AS launches, sum(duration_ns) AS duration_ns, sum(device_duration_ns) AS device_ns
        FROM launches GROUP BY site
    ), looked AS (
        SELECT v.site, count(*) AS value_rows, min({HEALTH_INDEX}) FILTER (v.moment = 'after') AS health
        FROM value_rows v GROUP BY v.site
    )
    SELECT s.kernel, min(s.kind) AS kind, count(*) AS sites, coalesce(sum(r.launches), 0) AS launches,
           sum(r.duration_ns) AS duration_ns, sum(r.device_ns) AS device_duration_ns, sum(w.value_rows) AS value_rows,
           coalesce(min(w.health), {NOT_RECORDED}) AS health, arg_min(s.stacks, s.site) AS source
    FROM sites s LEFT JOIN ran r ON r.site = s.site LEFT JOIN looked w ON w.site = s.site
    WHERE $1 IS NULL OR s.kernel = $1
    GROUP BY s.kernel ORDER BY sum(r.duration_ns) DESC NULLS LAST, s.kernel
"""
_SPREAD_OF = ("numel", *STATISTICS)
_COUNTED = {name: f"CASE WHEN NOT coalesce(v.at_least, false) THEN v.{name} END" for name in NONFINITE}
_SPREADS = ", ".join(
    "min({0}), max({0}), count(DISTINCT {0})".format(_COUNTED.get(name, f"v.{name}")) for name in _SPREAD_OF
)
_ARGUMENTS = f"""
    SELECT v.log, v.site, v.argument, v.item, v.part, a.name, a.role, a.buffer, v.moment, count(*),
           min({HEALTH_INDEX}), {_SPREADS}
    FROM value_rows v LEFT JOIN arguments a ON a.site = v.site AND a.argument = v.argument
    WHERE list_contains(?, v.site) GROUP BY ALL
    ORDER BY v.site, v.argument, v.item NULLS FIRST, v.part DESC, v.moment DESC
"""
_SIZES = """
    SELECT site, argument, item, min_by(size, len(size)), max_by(size, len(size)), count(DISTINCT size) FROM tensors
    WHERE list_contains(?, site) GROUP BY site, argument, item
"""
_LAUNCHES = f"""
    SELECT l.launch, l.log, l.step, l.site, c.graph, l.start_ns, l.duration_ns, l.device_duration_ns,
           coalesce((SELECT min({HEALTH_INDEX}) FROM value_rows v WHERE v.launch = l.launch AND v.moment = 'after'),
                    {NOT_RECORDED}) AS health, l.returned
    FROM (SELECT * FROM launches WHERE list_contains($1, site) ORDER BY launch LIMIT $2) l
    LEFT JOIN calls c ON c.call = l.call ORDER BY l.launch
"""


@dataclass(frozen=True)
class KernelRow:
    """A kernel name with its totals over all graphs of the trace."""

    kernel: str
    kind: str
    sites: int
    launches: int | None
    duration_ns: int | None
    device_duration_ns: int | None
    value_rows: int | None
    health: Health
    """Worst class of its outputs."""
    source: SourceLine | None


@dataclass(frozen=True)
class KernelDetail:
    row: KernelRow
    sites: list[SiteRow]
    arguments: list[KernelArgument]
    launches: list[KernelLaunch]
    """The first launches in order of time."""
    total_launches: int
    code: str | None
    code_first_line: int | None


class _Launch(NamedTuple):
    launch: int
    log: int
    step: int
    site: int
    graph: int
    start_ns: int
    duration_ns: int | None
    device_duration_ns: int | None
    health: int
    returned: bool


def kernel_rows(trace: Trace) -> list[KernelRow]:
    """Return all kernels, those with the longest host time first."""
    recorded = has_values(trace)
    return [_decoded(row, recorded) for row in sql.records(KernelRow, trace, _KERNELS, [None])]


def kernel_detail(trace: Trace, kernel: str, limit: int = 500) -> KernelDetail | None:
    """Return a kernel with at most `limit` launches; None if there is none of that name."""
    row = sql.record(KernelRow, trace, _KERNELS, [kernel])
    if row is None:
        return None
    ids = [site for (site,) in sql.rows(trace, "SELECT site FROM sites WHERE kernel = ? ORDER BY site", [kernel])]
    sites = site_rows(trace, ids)
    labels = {graph.graph: graph_label(graph.graph, graph.compile_id, graph.phase) for graph in list_graphs(trace)}
    part = _code(trace, sites)
    launches = [
        KernelLaunch(
            launch=launch.launch,
            log=launch.log,
            step=launch.step,
            site=launch.site,
            graph_label=labels.get(launch.graph, ""),
            start_ns=launch.start_ns,
            duration_ns=launch.duration_ns,
            device_duration_ns=launch.device_duration_ns,
            health=HEALTH[launch.health],
            returned=launch.returned,
        )
        for launch in sql.records(_Launch, trace, _LAUNCHES, [ids, limit])
    ]
    return KernelDetail(
        row=_decoded(row, has_values(trace)),
        sites=sites,
        arguments=_arguments(trace, ids),
        launches=launches,
        total_launches=row.launches or 0,
        code=part.text if part else None,
        code_first_line=part.first_line if part else None,
    )


def _decoded(row: KernelRow, recorded: bool) -> KernelRow:
    """Return `row` with the name of its class of health, and with the innermost line of its first stack as source."""
    stored: Any = row
    return replace(
        row,
        value_rows=int(row.value_rows or 0) if recorded else None,
        health=HEALTH[stored.health],
        source=next((SourceLine(**stack[-1]) for stack in sql.json_value(stored.source) if stack), None),
    )


def _code(trace: Trace, sites: Sequence[SiteRow]) -> CodePart | None:
    """Return the kernel's code in the wrapper of its first site; None if the log lacks that wrapper."""
    for site in sites[:1]:
        graph = graph_row(trace, site.graph)
        code = wrapper_code(trace, graph) if graph is not None else None
        if code is not None:
            return cut(code, site.kernel, site.kind, site.line)
    return None


def _arguments(trace: Trace, sites: Sequence[int]) -> list[KernelArgument]:
    sizes = {
        (site, argument, item): Spread("size", sql.json_value(low), sql.json_value(high), count)
        for site, argument, item, low, high, count in sql.rows(trace, _SIZES, [list(sites)])
    }
    result = []
    for row in sql.rows(trace, _ARGUMENTS, [list(sites)]):
        log, site, argument, item, part, name, role, buffer, moment, rows, health, *numbers = row
        spreads = [size] if (size := sizes.get((site, argument, item))) else []
        spreads += _spreads(numbers)
        result.append(
            KernelArgument(
                log=log,
                site=site,
                argument=argument,
                item=item,
                part=part,
                name=name or f"argument {argument}",
                role=role or "unknown",
                buffer=buffer,
                moment=moment,
                rows=rows,
                health=HEALTH[health],
                varies=[spread for spread in spreads if spread.values > 1],
                never=[spread for spread in spreads if spread.values == 1],
            )
        )
    return result


def _spreads(numbers: Sequence[Any]) -> list[Spread]:
    """Return the range of each statistic that any row has."""
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return [Spread(name, *triple) for name, triple in zip(_SPREAD_OF, triples, strict=True) if triple[2]]
