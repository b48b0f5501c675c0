"""The runs of a trace: one per log."""

from __future__ import annotations

from viewer.queries import sql
from viewer.queries.rows import RunRow
from viewer.store.open import Trace


def list_runs(trace: Trace) -> list[RunRow]:
    """One row per log; what PyTorch alone wrote has no level."""
    found = sql.rows(
        trace,
        "SELECT log, path, rank, world_size, pid, torch_version, format_version, complete, size_bytes,"
        " start_unix_ns, run FROM logs ORDER BY log",
    )
    return [_run(row) for row in found]


def _run(row: sql.Row) -> RunRow:
    log, path, rank, world_size, pid, torch, version, complete, size_bytes, start_unix_ns, text = row
    run = sql.json_value(text) or {}
    return RunRow(
        log=log,
        path=path,
        rank=rank,
        world_size=world_size,
        pid=pid,
        torch=torch,
        python=run.get("python_version"),
        stepscope=run.get("stepscope_version"),
        devices=run.get("devices", []),
        argv=run.get("argv", []),
        level=run.get("level"),
        format_version=version,
        complete=complete,
        size_bytes=size_bytes,
        start_unix_ns=start_unix_ns,
        config=run.get("config", {}),
        parent_pid=run.get("parent_pid"),
        forked=run.get("forked") is True,
    )
