"""Queries what the launches of steps cost: short ones, copies, and their time on a device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.speed.queries.device_work import profiled_busy_ns
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.kernel_bytes import kernel_bytes

SHORT_NS, SHORT_IF_SMALL_NS, SMALL_BYTES = 5_000, 20_000, 4096
_TYPICAL = "typical AS MATERIALIZED (SELECT unnest($logs) AS log, unnest($steps) AS step)"
_SHORT = f"""
    WITH {_TYPICAL}, timed AS (
        SELECT l.log, l.step, l.site, s.kernel, l.duration_ns FROM launches l
        JOIN typical t ON t.log = l.log AND t.step = l.step JOIN sites s ON s.site = l.site
        WHERE s.kind <> 'subgraph' AND l.duration_ns IS NOT NULL
    ), short AS (
        SELECT log, site FROM timed GROUP BY log, site, kernel
        HAVING median(duration_ns) < CASE WHEN list_contains($small, kernel) THEN $short_if_small ELSE $short END
    )
    SELECT log, step, count(*), sum(duration_ns)::BIGINT FROM timed JOIN short USING (log, site) GROUP BY log, step
"""
_BUSIEST = f"""
    WITH {_TYPICAL}, counted AS (
        SELECT c.log, c.graph, sum(c.launches) AS launches FROM calls c
        JOIN typical t ON t.log = c.log AND t.step = c.step WHERE c.depth = 0 AND c.graph IS NOT NULL GROUP BY ALL
    )
    SELECT log, arg_max(graph, (launches, -graph)) FROM counted GROUP BY log
"""
_DEVICE = f"""
    WITH {_TYPICAL}, timed AS (
        SELECT l.log, c.graph, c.function, sum(l.device_duration_ns) / count(DISTINCT c.call) AS call_ns,
               count(*) - count(l.device_duration_ns) AS unknown
        FROM launches l JOIN calls c ON c.call = l.call JOIN sites s ON s.site = l.site AND s.kind <> 'subgraph'
        WHERE c.call IN (SELECT call FROM launches WHERE device_duration_ns IS NOT NULL
                         AND list_contains($within, log))
        GROUP BY l.log, c.graph, c.function
    )
    SELECT c.log, sum(m.call_ns)::BIGINT, count(*) - count(m.call_ns), coalesce(sum(m.unknown), 0)
    FROM calls c JOIN typical t ON t.log = c.log AND t.step = c.step
    LEFT JOIN timed m ON m.log = c.log AND m.graph = c.graph AND m.function = c.function
    WHERE c.launches > 0 GROUP BY c.log
"""
_COPIES = f"""
    WITH {_TYPICAL}
    SELECT l.log, l.site, s.graph, any_value(s.kernel) AS kernel, any_value(s.aten) AS aten,
           any_value(s.stacks) AS stacks, count(*) AS launches, min(l.launch) AS launch,
           sum(coalesce(l.device_duration_ns, CASE WHEN s.kind = 'cpp' THEN l.duration_ns END))::BIGINT AS duration_ns
    FROM launches l JOIN typical t ON t.log = l.log AND t.step = l.step JOIN sites s ON s.site = l.site
    WHERE s.kind IN ('cpp', 'triton') AND s.aten IS NOT NULL
    GROUP BY l.log, l.site, s.graph HAVING duration_ns IS NOT NULL ORDER BY l.log, duration_ns DESC
"""
_PRODUCTS = f"""
    WITH {_TYPICAL}, known AS (
        SELECT l.log, l.site, any_value(s.graph) AS graph, any_value(s.kernel) AS kernel, any_value(s.stacks) AS stacks,
               count(t.step) AS launches, min(l.launch) AS launch, avg(l.device_duration_ns) AS each_ns
        FROM launches l JOIN sites s ON s.site = l.site JOIN graphs g ON g.graph = s.graph
        LEFT JOIN typical t ON t.log = l.log AND t.step = l.step
        WHERE list_contains($within, l.log) AND g.matmul_precision = 'highest' AND s.kind IN ('extern', 'triton')
          AND regexp_matches(s.kernel, '(^|[._])(mm|bmm|addmm|baddbmm)($|_)') AND l.site IN (
            SELECT t.site FROM tensors t WHERE list_contains($within, t.log) GROUP BY t.site
            HAVING bool_and(t.dtype = 'float32' AND starts_with(t.device, 'cuda')))
        GROUP BY l.log, l.site
    )
    SELECT log, site, graph, kernel, launch, launches, (launches * each_ns)::BIGINT AS duration_ns, stacks
    FROM known WHERE launches > 0 AND each_ns IS NOT NULL ORDER BY log, duration_ns DESC
"""
_KERNELS = f"""
    WITH {_TYPICAL}
    SELECT l.log, l.site, any_value(s.graph) AS graph, any_value(s.kernel) AS kernel, any_value(s.stacks) AS stacks,
           count(*) AS launches, min(l.launch) AS launch,
           sum(coalesce(l.device_duration_ns, l.duration_ns))::BIGINT AS duration_ns
    FROM launches l JOIN typical t ON t.log = l.log AND t.step = l.step JOIN sites s ON s.site = l.site
    WHERE s.kind <> 'subgraph' GROUP BY l.log, l.site ORDER BY l.log, duration_ns DESC
"""
_QUICKEST = f"""
    WITH {_TYPICAL}
    SELECT l.site, quantile_disc(coalesce(l.device_duration_ns, CASE WHEN on_host THEN l.duration_ns END), 0.1)
    FROM launches l JOIN typical t ON t.log = l.log AND t.step = l.step JOIN (
        SELECT site, bool_and(device = 'cpu') AS on_host FROM tensors WHERE list_contains($sites, site) GROUP BY site
    ) USING (site) GROUP BY l.site
"""
MOST_STEPS = 50_000
"""Number of steps from which on no other log is asked about in the same statement."""
_COPY = {"aten.clone", "aten.copy", "aten.contiguous"}
_MOVES = {"aten.permute", "aten.transpose", "aten.t", "aten.as_strided", "aten.slice", "aten.select", "aten.expand"}
_VIEWS = {
    "aten.view",
    "aten.reshape",
    "aten._unsafe_view",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.split",
    "aten.alias",
}


StepsOfLogs = Mapping[int, Sequence[int]]
"""Steps by log."""


class SiteCost(NamedTuple):
    """The launches of one site in some steps together."""

    site: int
    graph: int
    kernel: str
    launch: int
    """Its first launch in the given steps, or of all if only some were measured."""
    launches: int
    duration_ns: int
    source: SourceLine | None


def short_launches(trace: Trace, steps: StepsOfLogs) -> dict[int, dict[int, tuple[int, int]]]:
    """Return the number of launches in each of these steps from sites whose launches cost about as much as calling a
    kernel, and their time together, by log and step.

    These are sites whose launches take less than `SHORT_NS` in the median, or less than `SHORT_IF_SMALL_NS` if the
    kernel moves at most `SMALL_BYTES` per launch on average, which no machine needs long for."""
    found: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    every = trace.once(kernel_bytes) if steps else {}
    small = [name for name, of in every.items() if of.moved is not None and of.moved <= SMALL_BYTES * of.launches]
    bounds = {"short": SHORT_NS, "short_if_small": SHORT_IF_SMALL_NS, "small": small}
    for asked in _portions(steps):
        for log, step, count, total in sql.rows(trace, _SHORT, {**asked, **bounds}):
            found[log][step] = count, total
    return found


def busiest_graphs(trace: Trace, steps: StepsOfLogs) -> dict[int, int]:
    """Return the graph with the most launches in these steps, by log."""
    return {log: graph for asked in _portions(steps) for log, graph in sql.rows(trace, _BUSIEST, asked)}


def device_time(trace: Trace, steps: StepsOfLogs) -> dict[int, int]:
    """Return the time in which the devices work in these steps together, by log.

    If PyTorch's profiler saw such steps, this is the time of all their work. Else it is that of their launches, from
    the calls of the same functions that were measured; logs of which some function was not measured are left out."""
    times: dict[int, int] = {}
    for asked in _portions(steps):
        found = sql.rows(trace, _DEVICE, _within(asked))
        times |= {log: total for log, total, unmeasured, unknown in found if not (unmeasured or unknown)}
        busy = profiled_busy_ns(trace, asked["logs"], asked["steps"])
        times |= {log: each * len(steps[log]) for log, each in busy.items()}
    return times


def layout_copies(trace: Trace, steps: StepsOfLogs) -> dict[int, list[SiteCost]]:
    """Return the sites that only copy to another layout, the longest first, with the time of their launches, by log."""
    found: defaultdict[int, list[SiteCost]] = defaultdict(list)
    for asked in _portions(steps):
        for row in sql.named(trace, _COPIES, asked, json=("aten", "stacks")):
            if _is_layout_copy({name.rpartition(".default")[0] or name for name in row["aten"]}):
                found[row["log"]].append(_cost(row))
    return found


def kernel_costs(trace: Trace, steps: StepsOfLogs) -> dict[int, list[SiteCost]]:
    """Return all sites with the time of their launches in these steps, the longest first, by log."""
    found: defaultdict[int, list[SiteCost]] = defaultdict(list)
    for asked in _portions(steps):
        for row in sql.named(trace, _KERNELS, asked, json=("stacks",)):
            found[row["log"]].append(_cost(row))
    return found


def quickest_tenths(trace: Trace, steps: StepsOfLogs, sites: Sequence[int]) -> dict[int, int]:
    """Return for each of these sites the time that a tenth of its launches in these steps do not exceed: on the device,
    or on the host if all of its tensors are on the CPU. Sites without such times are left out."""
    found: dict[int, int] = {}
    for asked in _portions(steps) if sites else ():
        rows = sql.rows(trace, _QUICKEST, {**asked, "sites": list(sites)})
        found |= {site: quick_ns for site, quick_ns in rows if quick_ns is not None}
    return found


def full_precision_products(trace: Trace, steps: StepsOfLogs) -> dict[int, list[SiteCost]]:
    """Return the sites of matrix products of float32 on a CUDA device that are computed in float32, the longest first,
    with the time of their launches on the device, by log; those that were never measured are left out."""
    found: defaultdict[int, list[SiteCost]] = defaultdict(list)
    for asked in _portions(steps):
        for row in sql.named(trace, _PRODUCTS, _within(asked), json=("stacks",)):
            found[row["log"]].append(_cost(row))
    return found


def has_collectives(trace: Trace) -> bool:
    """Return whether compiled graphs contain collectives."""
    return bool(sql.number(trace, "SELECT EXISTS(FROM sites WHERE kind = 'collective')"))


def _portions(steps: StepsOfLogs) -> Iterator[dict[str, list[int]]]:
    """Yield the logs and their steps as parameters of statements."""
    logs: list[int] = []
    numbers: list[int] = []
    for log, of_log in steps.items():
        logs += [log] * len(of_log)
        numbers += of_log
        if len(numbers) >= MOST_STEPS:
            yield {"logs": logs, "steps": numbers}
            logs, numbers = [], []
    if numbers:
        yield {"logs": logs, "steps": numbers}


def _within(asked: dict[str, list[int]]) -> dict[str, list[int]]:
    return {**asked, "within": list(dict.fromkeys(asked["logs"]))}


def _is_layout_copy(operators: set[str]) -> bool:
    return bool(operators & _COPY and operators & _MOVES) and operators <= _COPY | _MOVES | _VIEWS


def _cost(row: dict[str, Any]) -> SiteCost:
    line = next((stack[-1] for stack in row["stacks"] or () if stack), None)
    names = ("site", "graph", "kernel", "launch", "launches", "duration_ns")
    return SiteCost(**{name: row[name] for name in names}, source=SourceLine(**line) if line else None)
