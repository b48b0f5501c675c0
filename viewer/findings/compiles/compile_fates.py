"""What became of a program after one of its compiles failed."""

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


class Fates:
    """Reads what all failed compiles need once."""

    def __init__(self, evidence: Evidence) -> None:
        self._runs = {run.log: run for run in evidence.runs}
        self._last = last_compiles(evidence.trace)
        self._uncaught = uncaught_exceptions(evidence.trace)

    def of(self, event: CompileEvent) -> Fate:
        """It died by the error, or with it as the last of its log; it went on if a launch or a compile came after it,
        or an end without that error, as when the program catches it; else nothing is known."""
        run, error = self._runs[event.log], self._uncaught.get(event.log)
        is_last = self._last.get(event.log) == event.compile_id
        if error is not None and _is_same(event, error.text):
            return "died"
        if run.complete or not is_last:
            return "went on"
        if run.format_version is None or is_running(run):
            return "unknown"
        return "died"


def _is_same(event: CompileEvent, text: str) -> bool:
    """The program ended by the error that ended the compile: one text holds the first line of the other."""
    told = [one.strip().partition("\n")[0][:_LONGEST] for one in (text, event.text)]
    ours, theirs = " ".join(f"{event.cause} {event.text}".split()), " ".join(text.split())
    return any(
        len(line) >= _SHORTEST and " ".join(line.split()) in other
        for line, other in zip(told, (ours, theirs), strict=True)
    )
