"""Finds graph breaks that take much of each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.evidence import Evidence
from stepscope.viewer.findings.speed.costly_gaps import costly_gaps
from stepscope.viewer.findings.speed.costs import is_costly, steady_runs
from stepscope.viewer.speed.rows import RunSplit


class HotBreak(NamedTuple):
    """A graph break that takes much of each step, in the log in which its share is largest."""

    run: RunSplit
    part_ns: int
    events: list[CompileEvent]
    """Records of the break in all logs; there is at least one."""
    is_whole: bool
    """Whether Python runs the whole function because of the break."""

    @property
    def share(self) -> float:
        return self.part_ns / self.run.typical_ns


def hot_breaks(evidence: Evidence) -> list[HotBreak]:
    """Return the graph breaks that are worth a finding, by their place."""
    events = evidence.compile_events("graph_break")
    found: dict[tuple[str | None, int | None], HotBreak] = {}
    for one in _costly_breaks(evidence, events) if events else ():
        place = one.events[0].file, one.events[0].line
        if place not in found or one.share > found[place].share:
            found[place] = one
    return list(found.values())


def _costly_breaks(evidence: Evidence, events: list[CompileEvent]) -> Iterator[HotBreak]:
    for run in steady_runs(evidence):
        for part in run.parts:
            source = part.source
            if part.kind == "break" and source is not None and is_costly(part.duration_ns, run.typical_ns):
                of_place = [event for event in events if (event.file, event.line) == (source.file, source.line)]
                if of_place:
                    yield HotBreak(run, part.duration_ns, of_place, False)
    for run, cost in costly_gaps(evidence.trace):
        broken = [event for event in events if event.log == run.log and event.compile_id in cost.fallbacks]
        if broken:
            yield HotBreak(run, cost.part_ns, broken, True)
