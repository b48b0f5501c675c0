"""The contents of a report, and the choice of rows for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stepscope.viewer.overview.rows import Overview
from stepscope.viewer.report.links import route_of

T = TypeVar("T")
MOST_NAMED = 200
"""Maximum number of rows of one kind that findings link to, even if it exceeds the limit for other rows."""
MOST_VALUES = 160
"""Maximum number of launches whose arguments are shown before and after."""


@dataclass
class Contents:
    """The contents of a report, and sentences about what it leaves out."""

    overview: Overview
    against: str | None = None
    """Name of the trace with which the report's is compared."""
    mini_curves: list[Any] = field(default_factory=list)
    """Curves of the graphs with the highest peaks, for the first page."""
    mini_curves_left: int = 0
    shown: dict[str, Any] = field(default_factory=dict)
    """Parts of the report, keyed by their names in the templates."""
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Sentences about the parts that could not be built."""

    def named_pages(self) -> set[str]:
        """Return the addresses of the pages that findings link to."""
        return {
            route_of(page)
            for finding in self.overview.findings
            for page in (finding.page, *(link.page for link in finding.links))
        }

    def say_left_out(self, there: int, shown: int, what: str) -> None:
        if shown < there:
            self.left_out.append(f"{there - shown:,} of {there:,} {what}")


def chosen(
    rows: Sequence[T], most: int, is_named: Callable[[T], bool], place: Callable[[T], tuple[int, ...] | int]
) -> list[T]:
    """Return the rows that findings link to and the first of the others, ordered by `place`."""
    named, others = [row for row in rows if is_named(row)], [row for row in rows if not is_named(row)]
    return sorted([*named[:MOST_NAMED], *others[: max(0, most - len(named))]], key=place)
