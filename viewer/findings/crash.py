"""A stepscope log has no end record, and the process that wrote it is not running on this machine: it was killed or
crashed. The launch named is the last one that did not return, else the last one in the log; launches that were not
yet written when the process died are not in the log."""

from __future__ import annotations

import os
from pathlib import Path

from viewer.findings.evidence import Evidence, Timed, rule_of
from viewer.queries import sql
from viewer.queries.rows import Finding, RunRow
from viewer.store.open import Trace

_LAST_SEEN = """
    SELECT (SELECT max(time_unix_ns) FROM records WHERE log = $1), (SELECT max(step) FROM steps WHERE log = $1),
           (SELECT count(*) FROM launches WHERE log = $1)
"""
_LAST_LAUNCH = """
    SELECT l.launch, l.step, l.duration_ns IS NULL, s.kernel, s.graph
    FROM launches l LEFT JOIN sites s ON s.site = l.site
    WHERE l.log = ? ORDER BY l.duration_ns IS NULL DESC, l.launch DESC LIMIT 1
"""
_START_SLACK_S = 5


def find(evidence: Evidence) -> list[Timed]:
    """One finding per log that ends too early."""
    return [
        _finding(evidence.trace, run)
        for run in evidence.runs
        if run.complete is False and not is_running(run.pid, run.start_unix_ns)
    ]


def _finding(trace: Trace, run: RunRow) -> Timed:
    log, pid = run.log, run.pid
    last_ns, step, launches = sql.row(trace, _LAST_SEEN, [log]) or (None, None, 0)
    last = sql.row(trace, _LAST_LAUNCH, [log])
    launch, launch_step, hung, kernel, graph = last or (None, None, False, None, None)
    shown_step = step if launch_step is None else launch_step
    where = "" if shown_step is None else f" in step {shown_step}"
    if kernel is not None:
        where += f", {'in' if hung else 'after'} launch {launch} ({kernel})"
    return last_ns or 0, Finding(
        kind="crash",
        severity="critical",
        title=f"The log has no end record: process {pid} ended{where}",
        rule=rule_of(__doc__),
        evidence={
            "pid": pid,
            "last_record_unix_ns": last_ns,
            "last_step": step,
            "launches": launches,
            "launch_returned": None if launch is None else not hung,
        },
        page=_page(log, shown_step, launch),
        rank=run.rank,
        step=shown_step,
        graph=graph,
        launch=launch,
        kernel=kernel,
        log=log,
    )


def _page(log: int, step: int | None, launch: int | None) -> str:
    if step is None:
        return f"/records?log={log}"
    return f"/steps/{step}?log={log}" + ("" if launch is None else f"&launch={launch}")


def is_running(pid: int | None, began_unix_ns: int | None) -> bool:
    """The process that wrote a log still runs on this machine; a younger process of the same id is another one."""
    if pid is None or pid <= 0 or os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return False
    started = Path(f"/proc/{pid}")
    if began_unix_ns is None or not started.exists():
        return True
    return started.stat().st_ctime <= began_unix_ns / 1e9 + _START_SLACK_S
