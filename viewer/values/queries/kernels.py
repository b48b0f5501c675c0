"""Queries for kernels by name over all graphs: the list, and the launches of one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepscope.viewer.graphs.queries.graphs import (
    code_of_graph,
    graph_label,
    innermost,
    list_graphs,
    site_rows,
)
from stepscope.viewer.graphs.queries.kernel_code import cut
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.kernel_bytes import KernelBytes, kernel_bytes
from stepscope.viewer.values.queries.spreads import ArgumentSpreads, argument_spreads
from stepscope.viewer.values.queries.tunings import TuningGroup, tuning_groups
from stepscope.viewer.values.queries.values import HEALTH_INDEX, NOT_RECORDED, has_values, health_of
from stepscope.viewer.values.rows import Health, KernelArgument, KernelLaunch, Spread

# Times by the profiler are exact; others include gaps, and a kernel that the profiler saw does without them.
_KERNELS = f"""
    WITH profiled AS (
        SELECT l.site, sum(l.device_duration_ns) AS device_ns, count(*) AS device_timed
        FROM launches l JOIN profiled_steps p ON p.log = l.log AND p.step = l.step
        WHERE l.device_duration_ns IS NOT NULL GROUP BY l.site
    ), ran AS (
        SELECT site, count(*) AS launches, sum(duration_ns) AS duration_ns, sum(device_duration_ns) AS device_ns,
               count(duration_ns) AS timed, count(device_duration_ns) AS device_timed
        FROM launches GROUP BY site
    ), looked AS (
        SELECT v.site, count(*) AS value_rows, min({HEALTH_INDEX}) FILTER (v.moment = 'after') AS health
        FROM value_rows v GROUP BY v.site
    )
    SELECT s.kernel, min(s.kind) AS kind, count(*) AS sites, coalesce(sum(r.launches), 0) AS launches,
           sum(r.duration_ns) AS duration_ns, sum(coalesce(p.device_ns, r.device_ns)) AS device_duration_ns,
           sum(w.value_rows) AS value_rows, coalesce(sum(r.timed), 0) AS timed,
           coalesce(sum(coalesce(p.device_timed, r.device_timed)), 0) AS device_timed,
           {health_of(f"coalesce(min(w.health), {NOT_RECORDED})")} AS health, arg_min(s.stacks, s.site) AS source
    FROM sites s LEFT JOIN ran r ON r.site = s.site LEFT JOIN looked w ON w.site = s.site
    LEFT JOIN profiled p ON p.site = s.site
    GROUP BY s.kernel ORDER BY sum(r.duration_ns) DESC NULLS LAST, s.kernel
"""
SUBGRAPH = "subgraph"
_ARGUMENTS = """
    SELECT site, argument, coalesce(nullif(name, ''), 'argument ' || argument), coalesce(nullif(role, ''), 'unknown'),
           buffer
    FROM arguments WHERE list_contains(?, site)
"""
_SIZES = """
    SELECT site, argument, item, min_by(size, len(size)), max_by(size, len(size)), count(DISTINCT size) FROM tensors
    WHERE list_contains(?, site) GROUP BY site, argument, item
"""
_WORST_OUTPUT = f"(SELECT min({HEALTH_INDEX}) FROM value_rows v WHERE v.launch = l.launch AND v.moment = 'after')"
_LAUNCHES = f"""
    SELECT l.launch, l.log, l.step, l.site, c.graph, l.start_ns, l.duration_ns, l.device_duration_ns,
           {health_of(f"coalesce({_WORST_OUTPUT}, {NOT_RECORDED})")} AS health, l.returned
    FROM (SELECT * FROM launches l WHERE list_contains($1, site) ORDER BY {{order}} LIMIT $2) l
    LEFT JOIN calls c ON c.call = l.call ORDER BY {{order}}
"""
LAUNCH_ORDERS = {"launch": "l.launch", "host": "l.duration_ns", "device": "l.device_duration_ns"}
"""The expressions by which launches can be sorted, with the column before them."""


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
    timed: int
    device_timed: int
    """Number of launches whose time on the host, or on the device, is known."""
    mean_ns: float | None = None
    """Time per launch: on the device where it was measured, else on the host."""
    share: float | None = None
    """Its part of the time of all launches; None for a subgraph, whose kernels have rows of their own."""
    moved_bytes: int | None = None
    """Bytes that its launches read and write together, from the sizes of their arguments."""
    bytes_per_second: float | None = None
    why_no_bandwidth: str | None = None

    @property
    def is_of_device(self) -> bool:
        """Return whether its time is that on the device."""
        return bool(self.device_timed)

    @property
    def time_ns(self) -> int | None:
        return self.device_duration_ns if self.is_of_device else self.duration_ns


@dataclass(frozen=True)
class KernelDetail:
    row: KernelRow
    sites: list[SiteRow]
    arguments: list[KernelArgument]
    tunings: list[TuningGroup]
    """The choices that Inductor's autotuner had for it."""
    launches: list[KernelLaunch]
    """The first launches in the order that was asked for, by default that of time."""
    total_launches: int
    code: str | None
    code_first_line: int | None


def kernel_rows(trace: Trace) -> list[KernelRow]:
    """Return all kernels, those with the longest time first."""
    return [*trace.once(_kernel_rows)]


def _kernel_rows(trace: Trace) -> list[KernelRow]:
    rows = _measured(trace, sql.records(KernelRow, trace, _KERNELS), trace.once(kernel_bytes))
    total = sum(row.time_ns or 0 for row in rows if row.kind != SUBGRAPH)
    if total:
        rows = [row if row.kind == SUBGRAPH else replace(row, share=(row.time_ns or 0) / total) for row in rows]
    return sorted(rows, key=lambda row: -(row.time_ns or -1))


def kernel_detail(
    trace: Trace, kernel: str, limit: int = 500, sort: str | None = None, is_down: bool = False
) -> KernelDetail | None:
    """Return a kernel with at most `limit` launches; None if there is none of that name."""
    row = next((row for row in trace.once(_kernel_rows) if row.kernel == kernel), None)
    if row is None:
        return None
    ids = [site for (site,) in sql.rows(trace, "SELECT site FROM sites WHERE kernel = ? ORDER BY site", [kernel])]
    sites = site_rows(trace, ids)
    code = code_of_graph(trace, sites[0].graph) if sites else None
    part = cut(code, kernel, sites[0].kind, sites[0].line) if code is not None else None
    return KernelDetail(
        row=row,
        sites=sites,
        arguments=_arguments(trace, ids),
        tunings=tuning_groups(trace, ids),
        launches=launches_at(trace, ids, limit, sort, is_down),
        total_launches=row.launches or 0,
        code=part.text if part else None,
        code_first_line=part.first_line if part else None,
    )


def launches_at(
    trace: Trace, sites: Sequence[int], limit: int, sort: str | None = None, is_down: bool = False
) -> list[KernelLaunch]:
    """Return at most `limit` launches of launch sites, by default the first ones."""
    labels = {graph.graph: graph_label(graph.graph, graph.compile_id, graph.phase) for graph in list_graphs(trace)}
    ordered = _LAUNCHES.format(order=sql.order_by(LAUNCH_ORDERS, sort, is_down, "l.launch"))
    return [
        KernelLaunch(graph_label=labels.get(launch["graph"], ""), **launch)
        for launch in sql.named(trace, ordered, [list(sites), limit])
    ]


def _measured(trace: Trace, rows: Sequence[KernelRow], moved: Mapping[str, KernelBytes]) -> list[KernelRow]:
    """Return `rows` with times per launch, bytes and bandwidths, and with the innermost line of a stack as source."""
    recorded = has_values(trace)
    found = []
    for row in rows:
        stored: Any = row
        timed = row.device_timed or row.timed
        mean = row.time_ns / timed if row.time_ns is not None and timed else None
        here = moved.get(row.kernel)
        why = _why_no_bandwidth(row, here, mean)
        per_launch = here.moved / row.launches if here and here.moved is not None and row.launches else None
        found.append(
            replace(
                row,
                value_rows=int(row.value_rows or 0) if recorded else None,
                source=innermost(stored.source),
                mean_ns=mean,
                moved_bytes=here.moved if here and row.kind != SUBGRAPH else None,
                bytes_per_second=per_launch * 1e9 / mean if why is None and per_launch is not None and mean else None,
                why_no_bandwidth=why,
            )
        )
    return found


def _why_no_bandwidth(row: KernelRow, moved: KernelBytes | None, mean: float | None) -> str | None:
    if not row.launches:
        return "the log contains no launch of this kernel"
    if row.kind == SUBGRAPH:
        return "the kernels of a subgraph have rows of their own"
    if moved is None or moved.moved is None:
        return "the size of an argument was not recorded"
    if not row.is_of_device and not moved.is_cpu:
        return "the time on the device was not measured, and the host does not wait for the device"
    return None if mean else "the duration of its launches is unknown"


def _arguments(trace: Trace, sites: Sequence[int]) -> list[KernelArgument]:
    sizes = {
        (site, argument, item): Spread("size", sql.json_value(low), sql.json_value(high), count)
        for site, argument, item, low, high, count in sql.rows(trace, _SIZES, [list(sites)])
    }
    names = {(site, argument): names for site, argument, *names in sql.rows(trace, _ARGUMENTS, [list(sites)])}
    result = []
    for row in sorted(argument_spreads(trace, sites), key=_order):
        name, role, buffer = names.get((row.site, row.argument), (f"argument {row.argument}", "unknown", None))
        size = sizes.get((row.site, row.argument, row.item))
        spreads = [*([size] if size else []), *row.spreads]
        varies = [spread for spread in spreads if spread.values > 1]
        never = [spread for spread in spreads if spread.values == 1]
        result.append(
            KernelArgument(
                row.log, row.site, row.argument, row.item, row.part, name, role, buffer, row.moment, row.rows,
                row.health, varies, never,
            )
        )  # fmt: skip
    return result


def _order(row: ArgumentSpreads) -> tuple[Any, ...]:
    """Return the key of the order: the whole argument before its items, the real part and the rows before first."""
    item = -1 if row.item is None else row.item
    return row.site, row.argument, item, row.part is None, row.part != "real", row.part or "", row.moment != "before"
