"""Finds out whether a program survived the failure of one of its compiles."""

from __future__ import annotations

from typing import Literal

from stepscope.viewer.compiles.queries.events import CompileEvent, last_compiles
from stepscope.viewer.crash.queries.process_ends import uncaught_exceptions
from stepscope.viewer.findings.crash.processes import is_running
from stepscope.viewer.findings.evidence import Evidence
from stepscope.viewer.overview.rows import Severity

Fate = Literal["died", "went on", "unknown"]
SEVERITIES: dict[Fate, Severity] = {"died": "critical", "unknown": "warning", "went on": "info"}
_SHORTEST, _LONGEST = 8, 200


def failed_compiles(evidence: Evidence) -> list[CompileEvent]:
    """Return the compiles that ended with an error, or that a log of PyTorch alone ends with."""
    recorded = {run.log for run in evidence.runs if run.format_version is not None}
    return [
        event
        for event in evidence.compile_events("compile_failure")
        if event.status != "skipped" and not (event.status == "unfinished" and event.log in recorded)
    ]


class Fates:
    """Returns the fates after failed compiles, for which it reads the common data once."""

    def __init__(self, evidence: Evidence) -> None:
        self._runs = {run.log: run for run in evidence.runs}
        self._last = last_compiles(evidence.trace)
        self._uncaught = uncaught_exceptions(evidence.trace)

    def of(self, event: CompileEvent) -> Fate:
        """Return "died" if the program ended by the error or its log ends with it, "went on" if a launch, a compile or
        an end without that error followed, else "unknown"."""
        run, error = self._runs[event.log], self._uncaught.get(event.log)
        is_last = self._last.get(event.log) == event.compile_id
        if error is not None and _is_same(event, error.text):
            return "died"
        if run.complete or not is_last:
            return "went on"
        if run.format_version is None or is_running(run):
            return "unknown"
        return "died"


def ended_by_a_compile(evidence: Evidence) -> set[int]:
    """Return the logs of programs that ended by the error of a compile."""
    uncaught = uncaught_exceptions(evidence.trace)
    if not uncaught:
        return set()
    failed = failed_compiles(evidence)
    return {event.log for event in failed if event.log in uncaught and _is_same(event, uncaught[event.log].text)}


def _is_same(event: CompileEvent, text: str) -> bool:
    """Return whether the error that ended the program ended the compile: one contains the other's first line."""
    told = [one.strip().partition("\n")[0][:_LONGEST] for one in (text, event.text)]
    ours, theirs = " ".join(f"{event.cause} {event.text}".split()), " ".join(text.split())
    return any(
        len(line) >= _SHORTEST and " ".join(line.split()) in other
        for line, other in zip(told, (ours, theirs), strict=True)
    )
