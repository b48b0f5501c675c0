"""A log of the trace was left out, because it has a newer format or could not be opened, so the other findings know
nothing of its process. Or the run record of a log is damaged or missing, so the program, the time and the recording
settings are unknown; all other records of that log were read. There is one finding per log."""

from __future__ import annotations

from pathlib import PurePath

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.overview.rows import Finding, RunRow

SUMMARY = "A log could not be read completely"

_FIRST = 0


def find(evidence: Evidence) -> list[Timed]:
    """Return findings that precede all other warnings, because these concern less than a log."""
    runs = {run.log: run for run in evidence.runs}
    return [(_FIRST, _finding(runs[log], reason, text)) for log, reason, text in evidence.unread_logs]


def _finding(run: RunRow, reason: str, text: str) -> Finding:
    name = PurePath(run.path).name
    title = f"{name} was not read: {text}"
    if reason == "no_run_record":
        title = f"{name} is a stepscope log whose run record is damaged or missing: {text}"
    return Finding(
        kind="unread_log",
        severity="warning",
        title=title,
        rule=rule_of(__doc__),
        evidence={"reason": reason, "format_version": run.format_version},
        page="/problems",
        rank=run.rank,
        log=run.log,
    )
