"""Compares the times of the launch sites and steps of two sides, by the spread of their calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Literal, NamedTuple

import orjson

from stepscope.viewer.compare.queries.pairs import Pairs, SitePair
from stepscope.viewer.compare.spread import is_longer, rank_probability, spread_of
from stepscope.viewer.compare.time_rows import (
    LEAST_CALLS,
    LEAST_COMMON,
    LoneKernel,
    Refusion,
    Spread,
    StepChange,
    TimeChange,
    Times,
)
from stepscope.viewer.graphs.queries.graphs import graph_label, innermost, list_graphs
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CALLS = """
    WITH wanted AS (SELECT unnest($sites) AS site),
    first AS (SELECT l.site, min(l.call) AS call FROM launches l JOIN wanted w ON w.site = l.site GROUP BY l.site),
    later AS (
        SELECT l.site, l.duration_ns, l.device_duration_ns,
               row_number() OVER (PARTITION BY l.site ORDER BY l.launch) AS number,
               count(*) OVER (PARTITION BY l.site) AS of_site
        FROM launches l JOIN first f ON f.site = l.site WHERE l.call > f.call
    )
    SELECT site, list(duration_ns) FILTER (duration_ns IS NOT NULL),
           list(device_duration_ns) FILTER (device_duration_ns IS NOT NULL)
    FROM later WHERE number % greatest(of_site // 500, 1) = 0 GROUP BY site
"""
"""The times of at most about 1,000 launches of each site, without those of its first call, which may warm up."""
_ON_HOST = "SELECT site FROM sites WHERE kind = 'cpp' OR (kind <> 'subgraph' AND NOT list_contains($1, log))"
_STEPS = """
    SELECT duration_ns FROM steps s
    WHERE list_contains($logs, log) AND launches > 0 AND duration_ns IS NOT NULL AND coalesce(compile_ns, 0) = 0
      AND kind IN ('train', 'inference') AND step > (SELECT min(step) FROM steps f WHERE f.log = s.log)
    ORDER BY log, step LIMIT 10000
"""
_ALONE = """
    SELECT s.site, s.graph, s.kernel, s.stacks, s.fx_nodes, count(l.launch),
           coalesce(sum(l.device_duration_ns),
                    sum(l.duration_ns) FILTER (s.kind = 'cpp' OR NOT list_contains($gpu_logs, s.log)))::BIGINT
    FROM sites s LEFT JOIN launches l ON l.site = s.site
    WHERE s.kind <> 'subgraph' AND list_contains($logs, s.log) AND s.site NOT IN (SELECT unnest($matched))
    GROUP BY s.site, s.graph, s.kernel, s.stacks, s.fx_nodes
"""


class _Alone(NamedTuple):
    row: LoneKernel
    graph: int
    nodes: frozenset[str]


class _Calls(NamedTuple):
    """The times of the calls of a launch site."""

    host: list[int]
    device: list[int]


def compare_times(ours: Trace, theirs: Trace, logs: Sequence[tuple[int, int]], pairs: Pairs) -> Times:
    """Return how the times of two runs compare. Sites that were timed too rarely on a side are left out."""
    timed = list(_timed(ours, theirs, pairs.sites))
    factors = [change.factor for change, _, _ in timed]
    common = median(factors) if len(factors) >= LEAST_COMMON else 1.0
    factors_ruled_out = 1.0, common
    changes = [
        replace(change, p=max(rank_probability(left, right, factor) for factor in factors_ruled_out))
        for change, left, right in timed
    ]
    slower = [
        one
        for one in changes
        if all(is_longer(one.left, one.right, one.p, len(changes), factor) for factor in factors_ruled_out)
    ]
    faster = [
        one
        for one in changes
        if all(is_longer(one.right, one.left, one.p, len(changes), 1 / factor) for factor in factors_ruled_out)
    ]
    together = [
        one
        for one, left, right in timed
        if is_longer(*_by_length(one), rank_probability(left, right), len(timed)) and (one.factor > 1) == (common > 1)
    ]
    refused, alone = _without_partner(ours, theirs, logs, pairs)
    return Times(
        compared=len(changes),
        common_factor=common,
        changed_together=len(together),
        left_ns=round(sum(one.left.median_ns * one.right.calls for one in changes)),
        slower=sorted(slower, key=lambda one: -one.difference_ns),
        faster=sorted(faster, key=lambda one: one.difference_ns),
        steps=_steps(ours, theirs, logs),
        refused=refused,
        alone=alone,
    )


def _timed(ours: Trace, theirs: Trace, sites: Sequence[SitePair]) -> Iterator[tuple[TimeChange, list[int], list[int]]]:
    left_calls, right_calls = (
        _calls(ours, [pair.left for pair in sites]),
        _calls(theirs, [pair.right for pair in sites]),
    )
    is_host = _host_sites(ours), _host_sites(theirs)
    for pair in sites:
        left, right = left_calls.get(pair.left), right_calls.get(pair.right)
        if left is None or right is None:
            continue
        measured: Literal["device", "host"] = "device"
        times = left.device, right.device
        if pair.left in is_host[0] and pair.right in is_host[1]:
            measured, times = "host", (left.host, right.host)
        if min(map(len, times)) < LEAST_CALLS:
            continue
        a, b = map(spread_of, times)
        if not a.median_ns:
            continue
        difference = round((b.median_ns - a.median_ns) * b.calls)
        change = TimeChange(
            pair.graph, pair.kernel, pair.left, pair.right, pair.source, measured, a, b, b.median_ns / a.median_ns, 1.0,
            difference,
        )  # fmt: skip
        yield change, *times


def _by_length(change: TimeChange) -> tuple[Spread, Spread]:
    return (change.left, change.right) if change.factor > 1 else (change.right, change.left)


def _calls(trace: Trace, sites: list[int]) -> dict[int, _Calls]:
    rows = sql.rows(trace, _CALLS, {"sites": sites}) if sites else []
    return {site: _Calls(host or [], device or []) for site, host, device in rows}


def _gpu_logs(trace: Trace) -> list[int]:
    return [run.log for run in list_runs(trace) if len(run.devices) > 1]


def _host_sites(trace: Trace) -> set[int]:
    """Return the sites whose time on the host is that of their work: C++ kernels, and all in a run without a GPU."""
    return {site for (site,) in sql.rows(trace, _ON_HOST, [_gpu_logs(trace)])}


def _steps(ours: Trace, theirs: Trace, logs: Sequence[tuple[int, int]]) -> StepChange | None:
    left, right = (
        [duration for (duration,) in sql.rows(trace, _STEPS, {"logs": [pair[side] for pair in logs]})]
        for side, trace in enumerate((ours, theirs))
    )
    if min(len(left), len(right)) < LEAST_CALLS:
        return None
    a, b, p = spread_of(left), spread_of(right), rank_probability(left, right)
    if not a.median_ns or not b.median_ns:
        return None
    return StepChange(a, b, b.median_ns / a.median_ns, p, is_longer(a, b, p, 1) or is_longer(b, a, p, 1))


def _without_partner(
    ours: Trace, theirs: Trace, logs: Sequence[tuple[int, int]], pairs: Pairs
) -> tuple[list[Refusion], list[LoneKernel]]:
    partner = {pair.left.graph: pair.right.graph for pair in pairs.graphs}
    left = _alone(ours, "left", [a for a, _ in logs], [pair.left for pair in pairs.sites])
    right = _alone(theirs, "right", [b for _, b in logs], [pair.right for pair in pairs.sites])
    refused: list[Refusion] = []
    for graph, other in partner.items():
        here = [one for one in left if one.graph == graph and one.nodes]
        there = [one for one in right if one.graph == other and one.nodes]
        refused += _refused(here, there)
    known = {(one.side, one.site) for found in refused for one in (*found.left, *found.right)}
    alone = [one.row for one in (*left, *right) if (one.row.side, one.row.site) not in known]
    return refused, sorted(alone, key=lambda one: -(one.time_ns or 0))


def _refused(left: Sequence[_Alone], right: Sequence[_Alone]) -> Iterator[Refusion]:
    """Yield groups of sites that share FX nodes, if both sides of a group compute the same ones."""
    waiting = [*left, *right]
    while waiting:
        group, nodes = [], set(waiting[0].nodes)
        while more := [one for one in waiting if one.nodes & nodes]:
            group += more
            waiting = [one for one in waiting if one not in more]
            nodes.update(*(one.nodes for one in more))
        ours, theirs = ([one for one in group if one.row.side == side] for side in ("left", "right"))
        if ours and theirs and _nodes(ours) == _nodes(theirs):
            yield Refusion(ours[0].row.graph, sorted(nodes), [one.row for one in ours], [one.row for one in theirs])


def _nodes(sites: Iterable[_Alone]) -> set[str]:
    return {node for one in sites for node in one.nodes}


def _alone(trace: Trace, side: Literal["left", "right"], logs: list[int], matched: list[int]) -> list[_Alone]:
    labels = {row.graph: graph_label(row.graph, row.compile_id, row.phase) for row in list_graphs(trace)}
    values = {"logs": logs, "matched": matched, "gpu_logs": _gpu_logs(trace)}
    return [
        _Alone(
            LoneKernel(side, labels.get(graph, f"graph {graph}"), kernel, site, innermost(stacks), launches, time_ns),
            graph,
            frozenset(orjson.loads(nodes or "[]")),
        )
        for site, graph, kernel, stacks, nodes, launches, time_ns in sql.rows(trace, _ALONE, values)
    ]
