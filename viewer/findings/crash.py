"""A stepscope log has no end record, and the process that wrote it is not running on this machine: it was killed or
crashed. A forked child of a process that ended well is no crash: it may have left by `os._exit`, and is told of as
not_recorded. The launch named is the last one that did not return, else the last one in the log; launches that were
not yet written when the process died are not in the log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from viewer.findings.evidence import Evidence, Timed, rule_of
from viewer.queries.last_seen import last_seen
from viewer.queries.rows import Finding, RunRow
from viewer.store.open import Trace

_START_SLACK_S = 5


def find(evidence: Evidence) -> list[Timed]:
    """One finding per log that ends too early."""
    return [_finding(evidence.trace, run) for run in unfinished(evidence.runs) if not may_have_left(run, evidence.runs)]


def unfinished(runs: Sequence[RunRow]) -> list[RunRow]:
    """Those without an end record whose processes do not run here."""
    return [run for run in runs if run.complete is False and not is_running(run.pid, run.start_unix_ns)]


def may_have_left(run: RunRow, runs: Sequence[RunRow]) -> bool:
    """A forked child of a process that ended well: nothing tells a death from `os._exit`."""
    return run.forked and any(parent.complete and parent.pid == run.parent_pid for parent in runs)


def _finding(trace: Trace, run: RunRow) -> Timed:
    log, pid = run.log, run.pid
    seen = last_seen(trace, log)
    step, launch = seen.step, seen.launch
    where = "" if step is None else f" in step {step}"
    if launch is not None:
        where += f", {'after' if seen.returned else 'in'} launch {launch} ({seen.kernel})"
    return seen.time_unix_ns or 0, Finding(
        kind="crash",
        severity="critical",
        title=f"The log has no end record: process {pid} ended{where}",
        rule=rule_of(__doc__),
        evidence={
            "pid": pid,
            "last_record_unix_ns": seen.time_unix_ns,
            "last_step": step,
            "launches": seen.launches,
            "launch_returned": seen.returned,
        },
        page=_page(log, step, launch),
        rank=run.rank,
        step=step,
        graph=seen.graph,
        launch=launch,
        kernel=seen.kernel,
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
    started_s = _started_unix_s(pid)
    return began_unix_ns is None or started_s is None or started_s <= began_unix_ns / 1e9 + _START_SLACK_S


def _started_unix_s(pid: int) -> float | None:
    """When a process began; None where the system does not say (only Linux does)."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot_s = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    except (OSError, IndexError, ValueError):
        return None
    return int(boot_s[1]) + ticks / os.sysconf("SC_CLK_TCK") if boot_s else None
