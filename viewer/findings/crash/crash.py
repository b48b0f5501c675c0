"""A recorded process died: its log has no end record and the process no longer runs on this machine; or an exception
left a launch; or a device reported an error; or a signal arrived after the recording ended. A worker that was ended by
its parent after the parent ended well is reported as not_recorded instead. A process that SIGTERM or SIGHUP asked to
stop is information only, as is one that ended silently after another process of the same parent failed, because
launchers end the remaining processes. The launch and the device come from the launch ring beside the log: a launch is
in flight on a device until a later mark is reached, so several launches may be in flight, and the first of them is
named. Without a ring, the finding names the last launch that did not return, or otherwise the last launch in the log.
Where the log ends during a compile and no launch is to blame, it names the compile. The range of addresses that a
kernel accesses is read from its generated source, assuming that its masks hold. Runs of `stepscope run --crash` that
died of the same cause share one finding, based on the run with the most detail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.crash.queries.last_seen import LastSeen, ran_before
from stepscope.viewer.crash.queries.process_ends import RingLaunch
from stepscope.viewer.findings.crash import suspects
from stepscope.viewer.findings.crash.deaths import Death, cpp_facts, deaths, failed_beside, same
from stepscope.viewer.findings.crash.raised_call import named_cause, operator_that_raised
from stepscope.viewer.findings.crash.suspects import Suspect
from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, rule_of
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.overview.rows import Finding, Severity
from stepscope.viewer.store.trace import Trace

SUMMARY = "The process died"

MOST_BEFORE = 6
MOST_IN_FLIGHT = 24
MOST_PROOFS = 2
_MOST_NAMED = 4


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per process that died, and one for all runs of --crash with the same cause."""
    all_deaths = deaths(evidence.trace)
    died = [death for death in all_deaths if death.kind != "exception"]
    compiling = {
        event.log: event for event in evidence.compile_events("compile_failure") if event.status == "unfinished"
    }
    return [_finding(evidence.trace, group, all_deaths, compiling) for group in grouped(died, same)]


def _finding(
    trace: Trace, group: Sequence[Death], all_deaths: Sequence[Death], compiling: Mapping[int, CompileEvent]
) -> Timed:
    """Return the finding of deaths with one cause. `compiling` has the compile during which each log ends."""
    found = [suspects.suspect(trace, death.blamed) if death.blamed is not None else None for death in group]
    death, known = max(zip(group, found, strict=True), key=lambda pair: _knows(*pair))
    at = death.at
    source = source_line(known.detail.site) if known else None
    beside = failed_beside(death, all_deaths)
    within = compiling.get(death.run.log) if known is None else None
    proof = (
        _evidence(trace, death, known)
        | {"compute_sanitizer": _tool_errors(group)}
        | cpp_facts(group)
        | ({"compile_id": within.compile_id} if within else {})
        | _runs(group)
    )
    title = title_of(death)
    if death.kind == "launch" and death.error is not None and known is not None and source is not None:
        operator = operator_that_raised(known.detail.site, named_cause(death.error.title) or "other")
        title = f"{operator}{place(source)} raised {death.error.title},{_where(at)}"
    title += f", while it was compiling {within.name}" if within else ""
    return at.time_unix_ns or 0, Finding(
        kind="crash",
        severity="info" if beside else _severity(death),
        title=title + (f"; process {beside.run.pid}, of the same parent, had failed" if beside else ""),
        rule=rule_of(__doc__),
        evidence=proof,
        proof=proof_lines(proof),
        page=page_of(death.run.log, at.step, at.launch),
        rank=death.run.rank,
        step=at.step,
        graph=at.graph,
        launch=death.blamed,
        kernel=at.kernel if death.blamed is not None else None,
        source=source,
        log=death.run.log,
    )


def _knows(death: Death, known: Suspect | None) -> tuple[int, ...]:
    """Return a sort key that is largest for the run with the most detail, of equal ones the first."""
    held = [one.values_seen.in_call for one in known.arguments if one.values_seen is not None] if known else []
    return known is not None, -max(len(death.on_device), 1), sum(held), len(held), -death.run.log


def _severity(death: Death) -> Severity:
    if death.was_asked:
        return "info"
    if death.kind == "after_end" or (death.end is not None and death.end.timed_out):
        return "warning"
    return "critical"


def title_of(death: Death) -> str:
    """Return a sentence about how and where the process died."""
    at, pid = death.at, death.run.pid
    if death.kind == "no_end" and death.end is None and not death.ring:
        where = "" if at.step is None else f" in step {at.step}"
        if at.launch is not None:
            where = f" {'after' if at.returned else 'in'} {at.text}, {at.kernel}"
        return f"The log has no end record: process {pid} ended{where}"
    if death.kind == "device":
        return f"{death.device_error}{_where(at, 'at' if death.on_device else None)}{_flight(death.on_device)}"
    if death.kind == "launch":
        return f"{death.error.title if death.error else 'An exception'},{_where(at)}"
    if death.kind == "after_end":
        behind = "" if at.step is None else f", after step {at.step}"
        return f"Process {pid} {death.how} after its recording had ended{behind}"
    return f"Process {pid} {death.how}{_where(at)}"


def _where(at: LastSeen, word: str | None = None) -> str:
    if at.step is None:
        return " before any recorded launch"
    if at.launch is None:
        return f" in step {at.step}"
    if at.returned and at.step_ended and word is None:
        return f" after step {at.step}, outside any launch"
    return f" {word or ('after' if at.returned else 'in')} {at.text}, {at.kernel}"


def _flight(rows: Sequence[RingLaunch]) -> str:
    if len(rows) < 2:
        return ", in flight on the device" if rows else ""
    last = rows[-1]
    return f", the first of {len(rows):,} in flight on the device, up to launch {last.launch}, {last.kernel}"


def page_of(log: int, step: int | None, launch: int | None) -> str:
    if step is None:
        return f"/records?log={log}"
    return f"/steps/{step}?log={log}" + ("" if launch is None else f"&launch={launch}")


def _evidence(trace: Trace, death: Death, known: Suspect | None) -> dict[str, Any]:
    at, end = death.at, death.end
    before = ran_before(trace, death.run.log, at.launch, MOST_BEFORE, death.blamed) if at.launch is not None else []
    return {
        "in": suspects.argument_sentences(known, written=False) if known else [],
        "out": suspects.argument_sentences(known, written=True) if known else [],
        "with": suspects.scalar_sentences(known) if known else [],
        "inside": suspects.reach_sentence(known) if known else None,
        "pid": death.run.pid,
        "symptom": death.symptom,
        "signal": end.signal_name if end else None,
        "exit_code": end.exit_code if end else None,
        "exception": death.error.title if death.error else None,
        "device_error": death.device_error,
        "last_record_unix_ns": at.time_unix_ns,
        "last_step": at.step,
        "launches": at.launches,
        "launch_in_step": at.ordinal,
        "launch_returned": at.returned,
        "has_ring": bool(death.ring),
        "last_finished": [_ring_facts(row) for row in death.last_finished],
        "in_flight": [_ring_facts(row) for row in death.on_device[:MOST_IN_FLIGHT]],
        "in_flight_count": len(death.on_device) or None,
        "other_threads": [_ring_facts(row) for row in death.threads if row.launch != at.launch and not row.returned],
        "ran_before": [
            {**attributes(row, "launch", "step"), "launch_in_step": row.ordinal, "kernel": row.kernel} for row in before
        ],
        "arguments": suspects.argument_facts(known) if known else [],
        "scalars": suspects.scalar_facts(known) if known else [],
        "index_ranges": suspects.reach_facts(known) if known else [],
    }


def proof_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return the two lines of the evidence that say most about why the process died."""
    tool, read, inside = facts.get("compute_sanitizer") or [], facts.get("in") or [], facts.get("inside")
    raised, flight = facts.get("cpp_raised"), facts.get("in_flight") or []
    lines = [
        *tool[:1],
        *([inside] if inside else []),
        *([f"The exception was raised in C++: {raised}: {' ← '.join(facts['cpp_stack'])}"] if raised else []),
        *([f"The launch read {'; '.join(read)}"] if read else []),
        *([f"Launches in flight: {', '.join(_launch_text(row) for row in flight[:_MOST_NAMED])}"] if flight else []),
        *([f"Last finished launch: {_launch_text(row)}" for row in (facts.get("last_finished") or [])[:1]]),
    ]
    return lines[:MOST_PROOFS]


def _launch_text(row: Mapping[str, Any]) -> str:
    return f"{row['launch']} {row['kernel']}"


def _ring_facts(row: RingLaunch) -> dict[str, Any]:
    known = attributes(row, "launch", "step", "kernel", "thread", "returned", "device", "stream")
    return known | {"launch_in_step": row.ordinal}


def _tool_errors(group: Sequence[Death]) -> list[str]:
    """Return what compute-sanitizer found in the runs."""
    errors = [error for death in group if death.end is not None for error in death.end.tool_errors]
    return [f"{error.title}: {' '.join(error.details)}" for error in errors]


def _runs(group: Sequence[Death]) -> dict[str, Any]:
    """Return the runs of --crash that died of the same cause."""
    if len(group) < 2:
        return {}
    return {
        "crash_runs": [
            {
                "run": death.end.run, "purpose": death.end.purpose, "step": death.at.step, "launch": death.blamed,
                "kernel": None if death.blamed is None else death.at.kernel,
                "in_flight": len(death.on_device) or None,
            }
            for death in group
            if death.end is not None
        ]
    }  # fmt: skip
