"""What the recorder costs a step: a share of the run says little where most of the run is compilation."""

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
    """``a step`` or ``the run``."""

    @property
    def text(self) -> str:
        """A step costs this at most: launches of the first steps, with their preparations, are in the mean."""
        return f"{'at most ' if self.of == 'a step' else ''}{100 * self.share:.1f} % of {self.of}"


def recorder_cost(overview: Overview) -> RecorderCost | None:
    """Of the median step behind the first of each log: what its launches cost in the mean; of the whole run where
    there are no such steps, or where that bound tells nothing. None: not measured."""
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
