"""Computes the recorder's cost per step, since a share of the run says little if most of it is compilation."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.viewer.overview.rows import Overview

_FEWEST = 2


@dataclass(frozen=True)
class RecorderCost:
    share: float
    of: str
    """What the share refers to: ``a step`` or ``the run``."""

    @property
    def text(self) -> str:
        """Return the cost as text; it is an upper bound for a step, as the mean includes the first launches."""
        return f"{'at most ' if self.of == 'a step' else ''}{100 * self.share:.1f} % of {self.of}"


def recorder_cost(overview: Overview) -> RecorderCost | None:
    """Return the recorder's share of the median step, without the first step of each log, or None if not measured.

    It is the share of the whole run if there are too few such steps or their share is not below 1."""
    cost, launches = overview.overhead, overview.counts.launches
    if cost.hook_ns is None:
        return None
    firsts: dict[int, int] = {}
    for row in overview.steps:
        firsts[row.log] = min(row.step, firsts.get(row.log, row.step))
    steady = [row for row in overview.steps if row.step != firsts[row.log] and row.launches and row.duration_ns]
    if launches and len(steady) >= _FEWEST:
        each = cost.hook_ns / launches
        most = median(each * row.launches / (row.duration_ns or 1) for row in steady)
        if most < 1 or not cost.wall_ns:
            return RecorderCost(min(1.0, most), "a step")
    return RecorderCost(cost.hook_ns / cost.wall_ns, "the run") if cost.wall_ns else None
