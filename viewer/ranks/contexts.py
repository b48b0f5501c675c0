"""What the pages of ranks know."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.ranks.queries.difference import RankDifference
from stepscope.viewer.ranks.queries.logs import RankRow
from stepscope.viewer.ranks.queries.ranks import AspectRow, SlowCompile
from stepscope.viewer.ranks.queries.sequences import Aspect


@dataclass(frozen=True)
class RanksPage:
    rows: list[RankRow]
    compared: list[int]
    """Logs that are compared: the last of each rank."""
    world_size: int | None
    missing: list[int]
    """Ranks without a log."""
    missing_name: str
    aspects: list[AspectRow]
    """Empty where there is nothing to compare."""
    first: AspectRow | None
    """The aspect in which they differ at the earliest compile."""
    slow: list[SlowCompile]
    slow_left: int


@dataclass(frozen=True)
class RankDifferencePage:
    aspect: Aspect
    title: str
    rows: list[RankRow]
    """All logs: what may stand on a side."""
    aspects: list[AspectRow]
    left: RankRow
    right: RankRow
    difference: RankDifference
