"""What the first page knows, and what stands around every page; apart from the others, which take time to import."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.overview.recorder_cost import RecorderCost
from stepscope.viewer.overview.rows import Counts, Overview, RunRow


@dataclass(frozen=True)
class MiniCurve:
    """The memory of a graph in little: points from the left to the right, in shares of the highest."""

    graph: int
    label: str
    estimated: list[float]
    measured: list[float]
    estimated_peak_bytes: int | None
    measured_peak_bytes: int | None
    base_bytes: int | None
    at: str | None
    """The node of the measured, else of the estimated peak."""
    step: int | None
    mismatches: int


@dataclass(frozen=True)
class OverviewPage:
    overview: Overview
    memory: list[MiniCurve]
    """Of the graphs with the highest peaks."""
    memory_left: int
    """Graphs with a curve of their own that is not among them."""
    shown_findings: int
    """The worst ones, so many, unless the address asks for all of them."""


@dataclass(frozen=True)
class FindingLink:
    title: str
    severity: str
    page: str


@dataclass(frozen=True)
class Frame:
    """What stands around every page: facts of the run above, damage and cost below."""

    runs: list[RunRow]
    facts: list[str]
    skipped: int
    not_recorded: int
    recorder_cost: RecorderCost | None
    index_bytes: int
    version: str
    counts: Counts
    findings: list[FindingLink]
    """In the order of the overview: where the keys [ and ] lead."""
    following: bool = False
    """The logs may grow while their pages are open."""
