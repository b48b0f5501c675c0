"""Queries the runs of a trace, one per log, and their steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from stepscope.tracer.schema.machine import Machine
from stepscope.viewer.graphs.queries.subgraph_calls import subgraph_calls
from stepscope.viewer.ingest.decode import decode
from stepscope.viewer.overview.rows import RunRow, StepRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

KEPT_LOGS = 16
"""Number of logs of which an open trace keeps the steps in memory."""
_COLUMNS = {
    "log": "l.log", "path": "path", "rank": "rank", "world_size": "world_size", "pid": "l.pid",
    "torch": "torch_version", "format_version": "format_version", "complete": "complete", "size_bytes": "size_bytes",
    "start_unix_ns": "start_unix_ns", "crash_run": "e.run", "writer": "l.writer",
}  # fmt: skip


def list_runs(trace: Trace) -> list[RunRow]:
    """Return the runs of a trace in the order of its logs."""
    return [*trace.once(_list_runs)]


def _list_runs(trace: Trace) -> list[RunRow]:
    found = sql.rows(
        trace,
        f"SELECT l.run, {', '.join(_COLUMNS.values())} FROM logs l LEFT JOIN process_ends e ON e.log = l.log"
        " QUALIFY row_number() OVER (PARTITION BY l.log) = 1 ORDER BY l.log",
    )
    return [_run(*row) for row in found]


def log_or_first(trace: Trace, log: int | None) -> int:
    """Return `log`, or the first log of the trace if it is None. A STORE may have no log 0."""
    return log if log is not None else min((run.log for run in trace.once(_list_runs)), default=0)


def has_recorder(trace: Trace) -> bool:
    """Return whether stepscope recorded one of the logs; otherwise only compiles are known."""
    return bool(sql.number(trace, "SELECT EXISTS(FROM records WHERE starts_with(name, 'stepscope_'))"))


def has_exports(trace: Trace) -> bool:
    """Return whether one of the logs has records of draft export."""
    return bool(sql.number(trace, "SELECT EXISTS(FROM export_events)"))


def list_steps(trace: Trace, log: int | None = None) -> list[StepRow]:
    """Return the steps of one log, or of all, in order."""
    return [*(trace.once(_all_steps) if log is None else trace.once(_steps_by_log).get(log, ()))]


def step_row(trace: Trace, log: int, step: int) -> StepRow | None:
    """Return a step, or None if the log has no step with this number."""
    return steps_by_number(trace, log).get(step)


def steps_by_number(trace: Trace, log: int) -> Mapping[int, StepRow]:
    """Return the steps of a log by their numbers."""
    return trace.once(_steps_by_number, log, most=KEPT_LOGS)


def _steps_by_number(trace: Trace, log: int) -> dict[int, StepRow]:
    return {row.step: row for row in trace.once(_steps_by_log).get(log, ())}


def _steps_by_log(trace: Trace) -> dict[int, list[StepRow]]:
    return {log: list(rows) for log, rows in groupby(trace.once(_all_steps), key=attrgetter("log"))}


def _all_steps(trace: Trace) -> list[StepRow]:
    found = sql.records(
        StepRow,
        trace,
        'SELECT log, step, kind, by_what AS "by", start_ns, end_ns, duration_ns, launches, calls, compile_ns,'
        " optimizers FROM steps ORDER BY log, step",
    )
    calls = subgraph_calls(trace).of_step
    return [_step(row, calls[row.log, row.step]) for row in found]


def _step(row: StepRow, calls: int) -> StepRow:
    return replace(row, launches=row.launches - calls, subgraph_calls=calls) if calls else row


def _run(text: str | None, *columns: Any) -> RunRow:
    """Return a run of its record in the log, and of the columns of the index in the order of the statement."""
    run = sql.json_value(text) or {}
    return RunRow(
        **dict(zip(_COLUMNS, columns, strict=True)),
        python=run.get("python_version") or None,
        stepscope=run.get("stepscope_version"),
        devices=run.get("devices", []),
        argv=run.get("argv", []),
        level=run.get("level"),
        config=run.get("config", {}),
        parent_pid=run.get("parent_pid"),
        forked=run.get("forked") is True,
        triton=run.get("triton_version"),
        cuda=run.get("cuda_version"),
        machine=decode(Machine, run["machine"]) if run.get("machine") else None,
    )
