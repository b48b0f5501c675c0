"""Places findings on the strip of steps and on the timeline of a step."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from stepscope.viewer.overview.rows import SEVERITY_SIGNS, Finding, Severity
from stepscope.viewer.steps.queries.finding_launches import Place
from stepscope.viewer.text.formats import plural

_LOG = re.compile(r"[?&]log=(\d+)")
SEVERITIES = [*SEVERITY_SIGNS]
"""From the worst to the least."""


class InStep(Protocol):
    """A finding, or a link to one."""

    @property
    def title(self) -> str: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def page(self) -> str: ...
    @property
    def step(self) -> int | None: ...
    @property
    def log(self) -> int | None: ...
    @property
    def compile_ids(self) -> list[str]: ...


F = TypeVar("F", bound=InStep)


@dataclass(frozen=True)
class Mark:
    """A finding of a step, with the place of its launch if it names one."""

    severity: Severity
    sign: str
    title: str
    page: str
    launch: int | None
    thread: int | None
    start_ns: int | None
    """Start of the launch on the run's monotonic clock."""


def step_marks(findings: Iterable[Finding], places: Mapping[int, Place], log: int, step: int) -> list[Mark]:
    """Return the findings of a step, the worst first. A finding that names a launch belongs to the launch's step."""
    marks = []
    for finding in findings:
        place = None if finding.launch is None else places.get(finding.launch)
        if (place.log, place.step) == (log, step) if place else (log_of(finding, log), finding.step) == (log, step):
            marks.append(_mark(finding, place))
    return sorted(marks, key=lambda mark: SEVERITIES.index(mark.severity))


def _mark(finding: Finding, place: Place | None) -> Mark:
    known = (finding.severity, SEVERITY_SIGNS[finding.severity], finding.title, finding.page)
    return Mark(*known, *((place.launch, place.thread, place.start_ns) if place else (None, None, None)))


def log_of(finding: InStep, default: int | None = None) -> int | None:
    """Return the log of a finding, which some findings name only in the address of their page."""
    if finding.log is not None:
        return finding.log
    found = _LOG.search(finding.page)
    return int(found[1]) if found else default


def findings_by(findings: Iterable[F], *names: str) -> dict[tuple[Any, ...], list[F]]:
    """Return the findings that name all of these attributes, such as graph and buffer, by their values, the worst
    first."""
    found: defaultdict[tuple[Any, ...], list[F]] = defaultdict(list)
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        place = tuple(getattr(finding, name) for name in names)
        if None not in place:
            found[place].append(finding)
    return found


def findings_by_compile(findings: Iterable[F]) -> dict[tuple[int, str], list[F]]:
    """Return the findings that name compiles, by log and compile id, the worst first."""
    return {
        (log, compile_id): [finding for finding in same if compile_id in finding.compile_ids]
        for (log,), same in findings_by(findings, "log").items()
        for compile_id in {name for finding in same for name in finding.compile_ids}
    }


def findings_by_step(findings: Iterable[F], logs: set[int]) -> dict[tuple[int, int], list[F]]:
    """Return the findings of each log and step, the worst first. One of an unknown log belongs to the only log."""
    only = next(iter(logs)) if len(logs) == 1 else None
    found: defaultdict[tuple[int, int], list[F]] = defaultdict(list)
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        log = log_of(finding, only)
        if log is not None and finding.step is not None:
            found[log, finding.step].append(finding)
    return found


def curve_marks(findings: Iterable[InStep], logs: set[int], log: int) -> list[dict[str, object]]:
    """Return the mark of each step of a log with findings, for a curve over its steps."""
    return [
        {
            "step": step,
            "severity": rows[0].severity,
            "sign": SEVERITY_SIGNS[rows[0].severity],
            "title": rows[0].title + (f", and {plural(len(rows) - 1, 'more finding')}" if len(rows) > 1 else ""),
        }
        for (of, step), rows in findings_by_step(findings, logs).items()
        if of == log
    ]
