"""Builds the contexts of the pages about ranks."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.ranks.queries.difference import RankDifference, rank_difference
from stepscope.viewer.ranks.queries.logs import RankRow
from stepscope.viewer.ranks.queries.ranks import TITLES, AspectRow, Ranks, SlowCompile, rank_names, ranks
from stepscope.viewer.ranks.queries.sequences import BASES, Aspect
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.parameters import number, one_of


@dataclass(frozen=True)
class RanksPage:
    rows: list[RankRow]
    compared: list[int]
    """Compared logs, which are the last of each rank."""
    world_size: int | None
    missing: list[int]
    """Ranks without a log."""
    missing_name: str
    aspects: list[AspectRow]
    """Empty if there is nothing to compare."""
    first: AspectRow | None
    """Aspect in which the ranks differ first; None if they do not differ."""
    slow: list[SlowCompile]
    slow_left: int


@dataclass(frozen=True)
class RankDifferencePage:
    aspect: Aspect
    title: str
    rows: list[RankRow]
    """All logs, each of which can be chosen for a side."""
    aspects: list[AspectRow]
    left: RankRow
    right: RankRow
    difference: RankDifference


def ranks_page(trace: Trace, request: Request) -> RanksPage:
    found = ranks(trace)
    return RanksPage(**vars(found), missing_name=rank_names(found.missing))


def difference_page(trace: Trace, request: Request) -> RankDifferencePage:
    found = ranks(trace)
    differing = next((row.aspect for row in found.aspects if row.state == "differ"), "compile_ids")
    asked = request.text("aspect") or differing
    aspect = next((name for name in TITLES if name == asked), None)
    if aspect is None:
        raise NotThere(f"“{asked[:40]}” is not an aspect of ranks; use one of {', '.join(TITLES)}.")
    left, right = _sides(found, aspect, request.optional_id("left"), request.optional_id("right"))
    difference = rank_difference(trace, aspect, left.log, right.log)
    return RankDifferencePage(aspect, TITLES[aspect], found.rows, found.aspects, left, right, difference)


def _sides(found: Ranks, aspect: Aspect, left: int | None, right: int | None) -> tuple[RankRow, RankRow]:
    """Return the requested logs, by default those of the first difference, else the first two."""
    rows = {row.log: row for row in found.rows}
    first = next((row.first for row in found.aspects if row.aspect == aspect), None)
    usual = [first.left, first.right] if first is not None else [*found.compared, *rows]
    left = usual[0] if left is None else left
    right = next((log for log in reversed(usual[:2]) if log != left), left) if right is None else right
    for log in (left, right):
        if log not in rows:
            raise NotThere(f"This trace contains no log {log}.")
    return rows[left], rows[right]


COMPARED = (
    one_of("aspect", [*BASES], "What ranks are compared in; without it the first in which they differ."),
    number("left", "The log on the left side."),
    number("right", "The log on the right side."),
)
ROUTES = (
    Page("/ranks", "ranks/page.html", "Ranks", RanksPage, ranks_page),
    Page("/ranks/difference", "ranks/difference.html", "Ranks", RankDifferencePage, difference_page, COMPARED),
)
