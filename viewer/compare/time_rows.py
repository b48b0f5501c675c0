"""How the times of two sides compare. The fields are those of ``times`` in `stepscope compare --json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.graphs.rows import SourceLine

LEAST_CALLS = 5
"""Minimum number of timed calls of each side."""
LEAST_COMMON = 4
"""Minimum number of launch sites from which a common factor is concluded."""


@dataclass(frozen=True)
class Spread:
    """The times of the calls of one side."""

    calls: int
    low_ns: float
    median_ns: float
    high_ns: float
    """A quarter of the calls takes at most `low_ns`, and a quarter at least `high_ns`."""


@dataclass(frozen=True)
class TimeChange:
    """A launch site, or the steps, with the times of both sides."""

    graph: str
    kernel: str
    left_site: int
    right_site: int
    source: SourceLine | None
    measured_on: Literal["device", "host"]
    left: Spread
    right: Spread
    factor: float
    """Median of the right side divided by that of the left side."""
    p: float
    """Probability of ranks of the calls that are as unequal as these, or more, if both sides took the same time, or the
    right side as long as the common factor says; the larger of the two."""
    difference_ns: int
    """Difference of the medians times the timed calls of the right side; negative if that is faster."""


@dataclass(frozen=True)
class StepChange:
    """The steps in which nothing was compiled, without the first one."""

    left: Spread
    right: Spread
    factor: float
    p: float
    is_significant: bool


@dataclass(frozen=True)
class LoneKernel:
    """A launch site that the other side lacks, with the host or device time of its launches; null if unknown."""

    side: Literal["left", "right"]
    graph: str
    kernel: str
    site: int
    source: SourceLine | None
    launches: int
    time_ns: int | None


@dataclass(frozen=True)
class Refusion:
    """Launch sites that compute the same FX nodes of a graph with other kernels."""

    graph: str
    nodes: list[str]
    left: list[LoneKernel]
    right: list[LoneKernel]


@dataclass(frozen=True)
class Times:
    compared: int
    """Launch sites with enough timed calls on both sides."""
    common_factor: float
    """The median of their factors; 1 if there are fewer than four. A site is slower or faster only if it is so by
    itself and also beyond this factor."""
    changed_together: int
    """Launch sites that are by themselves significantly slower, or faster if the common factor is below 1."""
    left_ns: int
    """Medians of the left side times the timed calls of the right side, of all compared sites together."""
    slower: list[TimeChange]
    """Launch sites that are significantly slower on the right side, the largest difference first."""
    faster: list[TimeChange]
    steps: StepChange | None
    """Null if a side has too few steps without a compile."""
    refused: list[Refusion]
    alone: list[LoneKernel]
    """Launch sites without a partner, apart from those in `refused`; the longest time first."""

    @property
    def changed_most(self) -> bool:
        """Return whether more than half of the sites changed in the direction of the common factor."""
        return self.changed_together * 2 > self.compared and self.compared >= LEAST_COMMON
