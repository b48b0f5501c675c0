"""Describes the value rows of a reading."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from stepscope.tracer.runtime.stats import StatsBlock
from stepscope.tracer.schema.values import Moment

_numbers = count()
"""Numbers of row groups; each is used once."""


class PlannedRead(NamedTuple):
    """One argument that a plan reads."""

    site: int
    argument: int
    moment: Moment
    kernel: str
    name: str
    is_fixed: bool
    """Whether nothing about the argument can vary from call to call."""
    is_checked: bool = False
    """Whether size and stride of the argument cannot vary from call to call."""
    names: tuple[str, ...] = ()
    """Names by which a filter of arguments may select it."""


class ReadRow(NamedTuple):
    planned: PlannedRead
    item: int | None
    part: str | None
    dtype: str
    numel: int
    looked_at: int
    skipped: str | None


class RowGroup:
    """The descriptions of the rows of one block: of one reading, or of several or some of them."""

    def __init__(self, rows: Iterable[ReadRow]) -> None:
        self.number = next(_numbers)
        """Number that is equal for groups with equal rows."""
        self.rows = list(rows)


Reading = tuple[RowGroup, StatsBlock]
"""The reading at one point of a wrapper in one call."""
