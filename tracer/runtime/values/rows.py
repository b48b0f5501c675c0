"""What the value rows of a reading are about."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple, Protocol

from stepscope.tracer.runtime.stats import StatsBlock
from stepscope.tracer.schema.records import Moment

numbers = count()
"""Numbers of groups of rows, each of which is used once."""


class PlannedRead(NamedTuple):
    """One argument that a plan reads."""

    site: int
    argument: int
    moment: Moment
    kernel: str
    name: str
    is_fixed: bool
    """Nothing about the argument can vary from call to call."""
    is_checked: bool = False
    """The size and stride of the argument cannot vary from call to call."""
    names: tuple[str, ...] = ()
    """The names by which a filter of arguments may select it."""


class ReadRow(NamedTuple):
    """What one value row is about."""

    planned: PlannedRead
    item: int | None
    part: str | None
    dtype: str
    numel: int
    looked_at: int
    skipped: str | None


class RowGroup(Protocol):
    """What the rows of one block are about."""

    number: int
    """Equal for equal rows."""
    rows: list[ReadRow]


Reading = tuple[RowGroup, StatsBlock]
"""What was read at one point of a wrapper in one call."""


class JoinedRows:
    """The rows of several readings, or some of them, as one group."""

    def __init__(self, rows: Sequence[ReadRow]) -> None:
        self.number = next(numbers)
        self.rows = list(rows)
