"""What a report holds, and how the capabilities choose their part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stepscope.viewer.overview.rows import Overview
from stepscope.viewer.report.links import route_of

T = TypeVar("T")
MOST_NAMED = 200
"""Pages of one sort that findings lead to: these come before the others, and beside their number."""


@dataclass
class Contents:
    """What a report holds, and in plain words what it leaves out."""

    overview: Overview
    shown: dict[str, Any] = field(default_factory=dict)
    """The parts by the names that the template has for them."""
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Sentences about the parts that could not be made."""

    def named_pages(self) -> set[str]:
        """The addresses of pages that findings lead to."""
        return {route_of(finding.page) for finding in self.overview.findings}

    def say_left_out(self, there: int, shown: int, what: str) -> None:
        if shown < there:
            self.left_out.append(f"{there - shown:,} of {there:,} {what}")


def chosen(
    rows: Sequence[T], most: int, is_named: Callable[[T], bool], place: Callable[[T], tuple[int, ...] | int]
) -> list[T]:
    """The rows that findings lead to, and of the others the first, in their own order."""
    named, others = [row for row in rows if is_named(row)], [row for row in rows if not is_named(row)]
    return sorted([*named[:MOST_NAMED], *others[: max(0, most - len(named))]], key=place)
