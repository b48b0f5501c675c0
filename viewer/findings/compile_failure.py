"""A compile ended with an error that was not the recompile limit. It is critical when the log ends with it: no end
record, and no launch or other compile after it; else the program went on without that compiled code, and it is a
warning. A warning too: a log that PyTorch alone wrote ends while something is compiled, because the process was killed
or still goes on."""

from __future__ import annotations

from viewer.findings.evidence import Evidence, Timed, compile_page, grouped, rule_of, times
from viewer.queries.compile_events import CompileEvent, last_compiles_of_unfinished_logs
from viewer.queries.rows_of_runs import Finding


def find(evidence: Evidence) -> list[Timed]:
    """One finding per frame and cause."""
    recorded = {run.log for run in evidence.runs if run.format_version is not None}
    events = [
        event
        for event in evidence.compile_events("compile_failure")
        if event.status != "skipped" and not (event.status == "unfinished" and event.log in recorded)
    ]
    last = last_compiles_of_unfinished_logs(evidence.trace) if events else {}
    return [
        _finding(group, last.get(group[-1].log) == group[-1].compile_id)
        for group in grouped(events, lambda event: (event.log, event.frame_id, event.cause))
    ]


def _finding(group: list[CompileEvent], died: bool) -> Timed:
    first = group[0]
    title = f"Compiling {first.name} failed{times(len(group))}: {first.cause}"
    if first.status == "unfinished":
        title = f"{first.name} was not compiled to its end: {first.cause}"
    return first.time_ns, Finding(
        kind="compile_failure",
        severity="critical" if died else "warning",
        title=title,
        rule=rule_of(__doc__),
        evidence={"failures": len(group), "compile_id": first.compile_id, "error": first.text[:2000]},
        page=compile_page(first.log, first.compile_id),
        rank=first.rank,
        source=first.source,
        log=first.log,
    )
