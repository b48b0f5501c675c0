"""Finds the places of the launches that findings name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


@dataclass(frozen=True)
class Place:
    """The place of a launch on the timeline of its step."""

    launch: int
    log: int
    step: int
    thread: int
    start_ns: int


def finding_places(trace: Trace, findings: Iterable[Finding]) -> dict[int, Place]:
    """Return the places of the launches that findings name, by launch."""
    return trace.once(_places, *sorted({finding.launch for finding in findings if finding.launch is not None}), most=8)


def _places(trace: Trace, *launches: int) -> dict[int, Place]:
    statement = "SELECT launch, log, step, thread, start_ns FROM launches WHERE list_contains($1, launch)"
    found = sql.records(Place, trace, statement, [list(launches)]) if launches else []
    return {place.launch: place for place in found}
