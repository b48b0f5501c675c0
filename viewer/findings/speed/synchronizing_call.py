"""A graph break at which the host reads a value that the device computes, as `.item()`, `.tolist()`, a branch on data
or a shape that depends on data do, takes at least 15 % and 1 ms of each typical step. The time reaches from the end of
the compiled graph before the break to the call that resumes after it; on a GPU it includes the time that the host waits
until the device has computed the value. A break for which Python runs the whole function counts with the time between
the calls of compiled graphs in which the function runs, from 25 % and 2 ms on. Typical steps are those of medium
duration in which nothing was compiled; there must be four. The finding is a warning from 30 % on, and replaces the
finding graph_break for this line."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.hot_break_finding import of_breaks

SUMMARY = "Reading a value on the host takes much of each step"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line of source."""
    return of_breaks(evidence, "synchronizing_call", rule_of(__doc__), reads=True)
