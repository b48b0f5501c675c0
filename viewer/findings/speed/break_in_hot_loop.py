"""A graph break takes at least 15 % and 1 ms of each typical step: the time from the end of the compiled graph before
it to the call that resumes after it, in which Python runs the code at the break and Dynamo checks guards. A break for
which Python runs the whole function counts with the time between the calls of compiled graphs in which the function
runs, from 25 % and 2 ms on. Typical steps are those of medium duration in which nothing was compiled; there must be
four. The finding is a warning from 30 % on, and replaces the finding graph_break for this line. Breaks at which the
host reads a value that the device computes have a finding of the kind synchronizing_call instead."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.hot_break_finding import of_breaks

SUMMARY = "A graph break takes much of each step"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line of source."""
    return of_breaks(evidence, "break_in_hot_loop", rule_of(__doc__), reads=False)
