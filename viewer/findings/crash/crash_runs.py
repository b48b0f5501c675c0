"""Describes the runs of `stepscope run --crash`, and whether the symptom appeared in each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepscope.viewer.crash.queries.process_ends import ProcessEndRow, process_ends, symptom
from stepscope.viewer.overview.rows import CrashRunRow
from stepscope.viewer.store.trace import Trace

if TYPE_CHECKING:
    from stepscope.viewer.findings.crash.deaths import Death

MOST_LINES, MOST_LETTERS = 12, 240


def crash_runs(trace: Trace) -> list[CrashRunRow]:
    """Return the runs in order; none if the trace was recorded without --crash."""
    ends: defaultdict[int, list[ProcessEndRow]] = defaultdict(list)
    for end in process_ends(trace).values():
        if end.run is not None:
            ends[end.run].append(end)
    if not ends:
        return []
    from stepscope.viewer.findings.crash.deaths import deaths  # takes time to import

    died = {death.run.log: death for death in deaths(trace)}
    rows: list[CrashRunRow] = []
    for run in sorted(ends):
        of_run = [died[end.log] for end in ends[run] if end.log in died]
        rows.append(_row(run, ends[run], of_run, rows[0] if rows else None))
    return rows


def _row(run: int, ends: Sequence[ProcessEndRow], died: Sequence[Death], first: CrashRunRow | None) -> CrashRunRow:
    end = ends[0]
    known = next((death.symptom for death in died if death.symptom is not None), None) or symptom(end, None)
    death = next((death for death in died if death.kind != "exception"), None)
    at = death.at if death and death.blamed is not None else None
    in_flight = next((len(death.on_device) for death in died if death.on_device), None)
    return CrashRunRow(
        run=run,
        purpose=end.purpose or "",
        asked=_asked(end, first),
        ended=_ended(end, known),
        symptom=known,
        survived=_survived(end, known, first, any(one.was_asked for one in died)),
        duration_ns=end.duration_ns or 0,
        step=death.at.step if death else None,
        launch=at.launch if at else None,
        launch_in_step=at.ordinal if at else None,
        launches_of_step=at.of if at else None,
        kernel=at.kernel if at else None,
        in_flight=in_flight,
        logs=[one.log for one in ends],
        tool_errors=end.tool_errors,
        said=[line[:MOST_LETTERS] for line in (end.error_tail or "").splitlines()[-MOST_LINES:]],
    )


def _asked(end: ProcessEndRow, first: CrashRunRow | None) -> list[str]:
    asked = [f"{name}={value}" for name, value in end.environment.items()]
    if first is None or end.kernels:
        asked.append(f"level {end.level}")
    if end.kernels:
        asked.append(f"kernels {', '.join(end.kernels)}")
    return [" ".join(end.tool), *asked] if end.tool else asked


def _ended(end: ProcessEndRow, known: str | None) -> str:
    if end.timed_out:
        return "time limit"
    return known or (f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}")


def _survived(end: ProcessEndRow, known: str | None, first: CrashRunRow | None, was_asked: bool) -> bool | None:
    """Return whether the symptom appeared, None if unknown: a run that was stopped might have shown it later."""
    if first is None or end.timed_out or first.symptom is None or (was_asked and known != first.symptom):
        return None
    return known == first.symptom
