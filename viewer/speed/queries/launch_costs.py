"""Queries what the launches of steps cost: short ones, copies, and their time on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SHORT = """
    SELECT count(*), coalesce(sum(l.duration_ns), 0)::BIGINT FROM launches l JOIN sites s ON s.site = l.site
    WHERE l.log = $log AND list_contains($steps, l.step) AND s.kind <> 'subgraph' AND l.duration_ns < $short
"""
_DEVICE = """
    WITH timed AS (
        SELECT c.graph, c.function, sum(l.device_duration_ns) / count(DISTINCT c.call) AS call_ns,
               count(*) - count(l.device_duration_ns) AS unknown
        FROM launches l JOIN calls c ON c.call = l.call JOIN sites s ON s.site = l.site AND s.kind <> 'subgraph'
        WHERE l.log = $log AND c.call IN (
            SELECT call FROM launches WHERE log = $log AND device_duration_ns IS NOT NULL)
        GROUP BY c.graph, c.function
    )
    SELECT sum(t.call_ns)::BIGINT, count(*) - count(t.call_ns), coalesce(sum(t.unknown), 0)
    FROM calls c LEFT JOIN timed t ON t.graph = c.graph AND t.function = c.function
    WHERE c.log = $log AND list_contains($steps, c.step) AND c.launches > 0
"""
_COPIES = """
    SELECT l.site, s.graph, any_value(s.kernel) AS kernel, any_value(s.aten) AS aten, any_value(s.stacks) AS stacks,
           count(*) AS launches, min(l.launch) AS launch,
           sum(coalesce(l.device_duration_ns, CASE WHEN s.kind = 'cpp' THEN l.duration_ns END))::BIGINT AS duration_ns
    FROM launches l JOIN sites s ON s.site = l.site
    WHERE l.log = $log AND list_contains($steps, l.step) AND s.kind IN ('cpp', 'triton') AND s.aten IS NOT NULL
    GROUP BY l.site, s.graph HAVING duration_ns IS NOT NULL ORDER BY duration_ns DESC
"""
_PRODUCTS = """
    WITH known AS (
        SELECT l.site, any_value(s.graph) AS graph, any_value(s.kernel) AS kernel, any_value(s.stacks) AS stacks,
               count(*) FILTER (list_contains($steps, l.step)) AS launches, min(l.launch) AS launch,
               avg(l.device_duration_ns) AS each_ns
        FROM launches l JOIN sites s ON s.site = l.site JOIN graphs g ON g.graph = s.graph
        WHERE l.log = $log AND g.matmul_precision = 'highest' AND s.kind IN ('extern', 'triton')
          AND regexp_matches(s.kernel, '(^|[._])(mm|bmm|addmm|baddbmm)($|_)') AND l.site IN (
            SELECT t.site FROM tensors t WHERE t.log = $log GROUP BY t.site
            HAVING bool_and(t.dtype = 'float32' AND starts_with(t.device, 'cuda')))
        GROUP BY l.site
    )
    SELECT site, graph, kernel, launch, launches, (launches * each_ns)::BIGINT AS duration_ns, stacks
    FROM known WHERE launches > 0 AND each_ns IS NOT NULL ORDER BY duration_ns DESC
"""
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


class SiteCost(NamedTuple):
    """The launches of one site in some steps together."""

    site: int
    graph: int
    kernel: str
    launch: int
    """Its first launch in the given steps."""
    launches: int
    duration_ns: int
    source: SourceLine | None


def short_launches(trace: Trace, log: int, steps: Sequence[int], short_ns: int) -> tuple[int, int]:
    """Return the number of launches in these steps that take less than `short_ns`, and their time together."""
    count, total = sql.rows(trace, _SHORT, {"log": log, "steps": list(steps), "short": short_ns})[0]
    return count, total


def device_time(trace: Trace, log: int, steps: Sequence[int]) -> int | None:
    """Return the time on the device of all launches of these steps together, from the calls of the same functions that
    were measured; None if some function was not measured."""
    total, unmeasured, unknown = sql.rows(trace, _DEVICE, {"log": log, "steps": list(steps)})[0]
    return None if unmeasured or unknown else total


def layout_copies(trace: Trace, log: int, steps: Sequence[int]) -> list[SiteCost]:
    """Return the sites that only copy to another layout, the longest first, with the time of their launches."""
    found = sql.named(trace, _COPIES, {"log": log, "steps": list(steps)}, json=("aten", "stacks"))
    return [
        _cost(row) for row in found if _is_layout_copy({name.rpartition(".default")[0] or name for name in row["aten"]})
    ]


def full_precision_products(trace: Trace, log: int, steps: Sequence[int]) -> list[SiteCost]:
    """Return the sites of matrix products of float32 on a CUDA device that are computed in float32, the longest first,
    with the time of their launches on the device; those that were never measured are left out."""
    found = sql.named(trace, _PRODUCTS, {"log": log, "steps": list(steps)}, json=("stacks",))
    return [_cost(row) for row in found]


def has_collectives(trace: Trace) -> bool:
    """Return whether compiled graphs contain collectives."""
    return bool(sql.number(trace, "SELECT EXISTS(FROM sites WHERE kind = 'collective')"))


def _is_layout_copy(operators: set[str]) -> bool:
    return bool(operators & _COPY and operators & _MOVES) and operators <= _COPY | _MOVES | _VIEWS


def _cost(row: dict[str, Any]) -> SiteCost:
    line = next((stack[-1] for stack in row["stacks"] or () if stack), None)
    names = ("site", "graph", "kernel", "launch", "launches", "duration_ns")
    return SiteCost(**{name: row[name] for name in names}, source=SourceLine(**line) if line else None)
