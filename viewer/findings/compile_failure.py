"""A compile ended with an error that was not the recompile limit. It is critical when the log ends with it: no end
record, and no launch or other compile after it; else the program went on without that compiled code, and it is a
warning. A warning too: a log that PyTorch alone wrote ends while something is compiled, because the process was killed
or still goes on."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import (
    Evidence,
    Timed,
    alike_in_logs,
    compile_page,
    grouped,
    in_logs,
    logs_of,
    rule_of,
    times,
)
from stepscope.viewer.queries.compile_events import CompileEvent, last_compiles_of_unfinished_logs
from stepscope.viewer.queries.rows_of_runs import Finding


def find(evidence: Evidence) -> list[Timed]:
    """One finding per frame and cause, over all logs in which it is the same."""
    recorded = {run.log for run in evidence.runs if run.format_version is not None}
    events = [
        event
        for event in evidence.compile_events("compile_failure")
        if event.status != "skipped" and not (event.status == "unfinished" and event.log in recorded)
    ]
    last = last_compiles_of_unfinished_logs(evidence.trace) if events else {}
    groups = grouped(events, lambda event: (event.log, event.frame_id, event.cause))
    dying = [group for group in groups if last.get(group[-1].log) == group[-1].compile_id]
    living = [group for group in groups if group not in dying]
    return [
        _finding(same[0], group_died, len(same))
        for some, group_died in ((dying, True), (living, False))
        for same in alike_in_logs(some)
    ]


def _finding(group: list[CompileEvent], died: bool, logs: int) -> Timed:
    first = group[0]
    title = f"Compiling {first.name} failed{times(len(group))}{in_logs(logs)}: {first.cause}"
    if first.status == "unfinished":
        title = f"{first.name} was not compiled to its end{in_logs(logs)}: {first.cause}"
    return first.time_ns, Finding(
        kind="compile_failure",
        severity="critical" if died else "warning",
        title=title,
        rule=rule_of(__doc__),
        evidence={"failures": len(group), **logs_of(logs), "compile_id": first.compile_id, "error": first.text[:2000]},
        page=compile_page(first.log, first.compile_id),
        rank=first.rank,
        source=first.source,
        log=first.log,
    )
