"""Queries what is missing: problems of the logs, and what the recorder could not record."""

from __future__ import annotations

from pathlib import PurePath

from stepscope.viewer.ingest.damage import REASONS
from stepscope.viewer.ingest.torch_trace.kinds import UNKNOWN_PREFIX
from stepscope.viewer.overview.rows import NotRecorded, Problem
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

SEEN_AT_BUFFERS = (
    "Values are recorded at buffers only: a value that is created and masked inside one fused kernel is not seen."
)


def problems(trace: Trace) -> list[Problem]:
    """Return the problems by log and place; the index keeps the first thousand per log and reason."""
    found = sql.rows(
        trace,
        "SELECT l.path, p.line, p.byte, p.reason, p.text FROM problems p JOIN logs l ON l.log = p.log"
        " ORDER BY p.log, p.byte NULLS FIRST, p.reason",
    )
    return [Problem(PurePath(path).name, *rest) for path, *rest in found]


def problem_counts(trace: Trace) -> dict[str, int]:
    """Return the number of problems by reason, most frequent first, including those without a stored place."""
    found = sql.rows(trace, "SELECT reason, sum(count) FROM problem_counts GROUP BY reason ORDER BY 2 DESC, 1")
    return {reason: int(count) for reason, count in found}


def whole_log_problems(trace: Trace) -> list[tuple[int, str, str]]:
    """Return (log, reason, text) of each log that was not read or has no run record."""
    reasons = ["newer_format", "not_read", "no_run_record"]
    return sql.rows(
        trace, "SELECT log, reason, text FROM problems WHERE reason IN (SELECT unnest(?)) ORDER BY log", [reasons]
    )


def damage_texts(trace: Trace) -> list[str]:
    """Return one line with the count for each reason and each unknown kind of record."""
    unknown = sql.rows(trace, "SELECT key, value FROM meta WHERE starts_with(key, ?) ORDER BY key", [UNKNOWN_PREFIX])
    lines = [f"damage: {count:,} x {REASONS[reason]}" for reason, count in problem_counts(trace).items()]
    return lines + [f"unknown: {value} x {key.removeprefix(UNKNOWN_PREFIX)}" for key, value in unknown]


def not_recorded(trace: Trace) -> list[NotRecorded]:
    """Return what the recorder reported as not recorded, and why."""
    return sql.records(
        NotRecorded,
        trace,
        "SELECT what, why, log, graph, count FROM not_recorded ORDER BY log, graph NULLS FIRST, what, why",
    )


def not_recorded_lines(trace: Trace) -> list[NotRecorded]:
    """Return `not_recorded` with equal rows of several graphs or logs merged."""
    alike: dict[tuple[str, str], list[NotRecorded]] = {}
    for row in not_recorded(trace):
        alike.setdefault((row.what, row.why), []).append(row)
    return [_as_one(rows) for rows in alike.values()]


def _as_one(rows: list[NotRecorded]) -> NotRecorded:
    first = rows[0]
    log = first.log if all(row.log == first.log for row in rows) else None
    graph = first.graph if all(row.graph == first.graph for row in rows) else None
    return NotRecorded(first.what, first.why, log, graph, sum(row.count for row in rows))


def inside_kernels(trace: Trace) -> list[NotRecorded]:
    """Return what a recording of values cannot show; empty if no values were recorded."""
    from stepscope.viewer.values.queries.values import has_values  # takes time to import

    return [NotRecorded("values inside a kernel", SEEN_AT_BUFFERS, None, None, 1)] if has_values(trace) else []
