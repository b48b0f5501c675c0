"""Queries how long the kernels of each step take, for steps that do the same work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_COURSES = """
    WITH sizes AS (
        SELECT a.call, string_agg(v.symbol || '=' || v.value, ',' ORDER BY v.symbol) AS text
        FROM call_symbols a JOIN symbol_values v ON v.assignment = a.assignment GROUP BY a.call
    ), work AS (
        SELECT c.log, c.step, bool_and(c.state = 'ok') AS is_usual,
               hash(list(concat_ws(' ', coalesce(g.wrapper_key, c.graph::VARCHAR), c.function, s.text)
                         ORDER BY c.start_ns)) AS digest
        FROM calls c JOIN graphs g ON g.graph = c.graph LEFT JOIN sizes s ON s.call = c.call
        WHERE c.depth = 0 AND c.step IS NOT NULL GROUP BY c.log, c.step
    ), timed AS (
        SELECT l.log, l.step, sum(l.duration_ns)::BIGINT AS ns, sum(l.device_duration_ns)::BIGINT AS device_ns,
               count(*) - count(l.device_duration_ns) AS unknown,
               bool_or(s.kind IN ('triton', 'user_triton')) AS on_device
        FROM launches l JOIN sites s ON s.site = l.site WHERE s.kind <> 'subgraph' GROUP BY l.log, l.step
    )
    SELECT t.log, t.step, w.digest, CASE WHEN t.on_device THEN t.device_ns ELSE t.ns END
    FROM timed t JOIN work w ON w.log = t.log AND w.step = t.step
    WHERE w.is_usual AND (NOT t.on_device OR t.unknown = 0) ORDER BY t.log, t.step
"""
_SITES = """
    WITH steps AS (SELECT unnest($steps) AS step, unnest($late) AS is_late)
    SELECT l.site, any_value(s.graph), any_value(s.kernel), any_value(s.stacks),
           coalesce(sum(coalesce(l.device_duration_ns, l.duration_ns)) FILTER (NOT t.is_late), 0)::BIGINT,
           coalesce(sum(coalesce(l.device_duration_ns, l.duration_ns)) FILTER (t.is_late), 0)::BIGINT,
           coalesce(min(l.launch) FILTER (t.is_late), min(l.launch))
    FROM launches l JOIN steps t ON t.step = l.step JOIN sites s ON s.site = l.site
    WHERE l.log = $log AND s.kind <> 'subgraph' GROUP BY l.site
"""

KernelCourses = dict[int, list[list[tuple[int, int]]]]
"""By log, and for each kind of step that does the same work, (step, time of its kernels in ns) in order."""


class SiteChange(NamedTuple):
    """The time of one launch site in all early and in all late steps."""

    graph: int
    kernel: str
    source: SourceLine | None
    early_ns: int
    late_ns: int
    launch: int
    """The first launch in the late steps."""


def kernel_courses(trace: Trace) -> KernelCourses:
    """Return the courses of all logs. Steps do the same work if they call the same generated code in the same order
    with the same sizes. On a GPU only steps count of which each launch was measured."""
    found: defaultdict[int, defaultdict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for log, step, digest, time_ns in sql.rows(trace, _COURSES):
        found[log][digest].append((step, time_ns))
    return {log: list(of_log.values()) for log, of_log in found.items()}


def site_changes(trace: Trace, log: int, early: Sequence[int], late: Sequence[int]) -> list[SiteChange]:
    """Return what each launch site takes in the early and in the late steps of a log."""
    asked = {
        "log": log,
        "steps": [*early, *late],
        "late": [*(False for _ in early), *(True for _ in late)],
    }
    changes = []
    for _, graph, kernel, stacks, early_ns, late_ns, launch in sql.rows(trace, _SITES, asked):
        line = next((stack[-1] for stack in sql.json_value(stacks) or () if stack), None)
        source = SourceLine(**line) if line else None
        changes.append(SiteChange(graph, kernel, source, early_ns, late_ns, launch))
    return changes
