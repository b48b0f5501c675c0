"""Reads the timeline of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stepscope.viewer.graphs.queries.graphs import graph_label
from stepscope.viewer.graphs.queries.subgraph_calls import subgraph_calls_in_step
from stepscope.viewer.judged.queries.verdicts import judged_launches
from stepscope.viewer.overview.queries.runs import step_row
from stepscope.viewer.overview.rows import StepRow
from stepscope.viewer.steps.queries.device_work import step_work, work_end_ns
from stepscope.viewer.steps.queries.step_launches import step_launches
from stepscope.viewer.steps.rows import CallRow, LaunchColumns, Span, Timeline
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import has_values

KEPT = 64
"""Number of steps of which an open trace keeps the threads in memory."""
_CALLS = """
    SELECT call, graph, function, parent, depth, thread, start_ns, duration_ns, launches, state FROM calls
    WHERE log = $log AND step = $step AND start_ns <= $stop AND start_ns + coalesce(duration_ns, 0) >= $start
    QUALIFY duration_ns IS NULL OR duration_ns >= $pixel OR row_number() OVER (
        PARTITION BY thread, depth, start_ns // $pixel ORDER BY duration_ns DESC NULLS FIRST, start_ns
    ) = 1
    ORDER BY duration_ns DESC LIMIT $most
"""
_SPANS = """
    SELECT s.name, s.compile_id, s.depth, s.start_unix_ns - l.unix_ns + l.monotonic_ns AS start_ns, s.duration_ns
    FROM spans s JOIN logs l ON l.log = s.log
    WHERE s.log = $log AND l.monotonic_ns IS NOT NULL
      AND s.start_unix_ns - l.unix_ns + l.monotonic_ns <= $stop
      AND s.start_unix_ns - l.unix_ns + l.monotonic_ns + s.duration_ns >= $start
    ORDER BY s.duration_ns DESC LIMIT $most
"""


def timeline(
    trace: Trace, log: int, step: int, start_ns: int | None = None, end_ns: int | None = None, width: int = 1600
) -> Timeline | None:
    """Return the timeline of a step, or of a window of it (monotonic ns), or None if there is no such step.

    If a thread has more than 2 * `width` launches in the window, those narrower than a pixel are merged, and of the
    calls that start in the same pixel those narrower than a pixel are left out except the longest.
    """
    row = step_row(trace, log, step)
    if row is None:
        return None
    step_end_ns = _end_of(trace, row)
    start = row.start_ns if start_ns is None else max(start_ns, row.start_ns)
    stop = step_end_ns if end_ns is None else min(end_ns, step_end_ns)
    stop, width = max(stop, start), max(width, 1)
    window = {"log": log, "start": start, "stop": stop}
    columns = step_launches(trace, row).window(start - row.start_ns, stop - row.start_ns, width)
    work = step_work(trace, row, step_end_ns)
    if not has_values(trace):
        columns.health.clear()
    if not judged_launches(trace, log, step):
        columns.verdict.clear()
    # A page fetches a narrower window only where launches are merged, so only there calls may be left out.
    pixel = max(1, (stop - start) // width) if max(columns.count, default=1) > 1 else 1
    calls = sql.rows(trace, _CALLS, {**window, "step": step, "pixel": pixel, "most": 4 * width})
    labels = trace.once(_labels)
    of_subgraphs = subgraph_calls_in_step(trace, log, step)
    spans = sql.rows(trace, _SPANS, {**window, "most": 4 * width}) if sql.has_rows(trace, "spans") else []
    return Timeline(
        log=log,
        step=step,
        start_ns=row.start_ns,
        end_ns=step_end_ns,
        window_start_ns=start,
        window_end_ns=stop,
        threads=trace.once(_threads, log, step, most=KEPT),
        spans=sorted((Span(*span) for span in spans), key=lambda span: (span.start_ns, span.depth)),
        calls=sorted(
            (_call(call, labels, of_subgraphs.get(call[0], 0)) for call in calls),
            key=lambda call: (call.start_ns, call.depth),
        ),
        launches=columns,
        sites=_sites(trace, set(columns.site)),
        total_launches=row.launch_rows,
        streams=work.streams if work is not None else [],
        work=_without_classes(work.work.window(start - row.start_ns, stop - row.start_ns, width)) if work else None,
        work_names=work.names if work is not None else [],
    )


def _without_classes(columns: LaunchColumns) -> LaunchColumns:
    """Return the columns of work, which has no values and no verdicts."""
    return replace(columns, health=[], verdict=[])


def _end_of(trace: Trace, step: StepRow) -> int:
    """Return the end of a step and of its work on devices, or the last known time in it if it never ended."""
    worked = work_end_ns(trace, step.log, step.step) if sql.has_rows(trace, "profiled_steps") else None
    if step.end_ns is not None:
        return max(step.end_ns, worked or 0)
    last = sql.number(
        trace,
        "SELECT greatest((SELECT max(start_ns + duration_ns) FROM calls WHERE log = $1 AND step = $2),"
        " (SELECT max(start_ns + coalesce(duration_ns, returned::INT)) FROM launches WHERE log = $1 AND step = $2))",
        [step.log, step.step],
    )
    return max(step.start_ns, last or 0, worked or 0)


def _threads(trace: Trace, log: int, step: int) -> list[int]:
    """Return the threads of a step, ordered by their first call."""
    found = sql.rows(
        trace,
        "SELECT thread FROM calls WHERE log = ? AND step = ? GROUP BY thread ORDER BY min(start_ns)",
        [log, step],
    )
    return [thread for (thread,) in found]


def _sites(trace: Trace, sites: set[int]) -> dict[int, dict[str, str]]:
    known = trace.once(_all_sites)
    return {site: known[site] for site in sorted(sites)}


def _all_sites(trace: Trace) -> dict[int, dict[str, str]]:
    """Return the kernel and the kind of each launch site; sites of one kernel share the object."""
    kernels: dict[tuple[str, str], dict[str, str]] = {}
    found = sql.rows(trace, "SELECT site, kernel, kind FROM sites")
    return {site: kernels.setdefault((name, kind), {"kernel": name, "kind": kind}) for site, name, kind in found}


def _labels(trace: Trace) -> dict[int, str]:
    """Return the label of each graph."""
    return {row[0]: graph_label(*row) for row in sql.rows(trace, "SELECT graph, compile_id, phase FROM graphs")}


def _call(row: sql.Row, labels: Mapping[int, str], of_subgraphs: int) -> CallRow:
    call, graph, function, parent, depth, thread, start_ns, duration_ns, launches, state = row
    label = labels.get(graph) or graph_label(graph, None, None)
    name = label if function == "call" else f"{label} · {function}"
    return CallRow(
        call, graph, name, function, parent, depth, thread, start_ns, duration_ns, launches - of_subgraphs, state
    )
