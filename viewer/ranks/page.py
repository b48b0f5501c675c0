"""From an address to the context of the pages of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.viewer.ranks.contexts import RankDifferencePage, RanksPage
from stepscope.viewer.web.addresses import NotThere, Page, Request

if TYPE_CHECKING:
    from stepscope.viewer.ranks.queries.logs import RankRow
    from stepscope.viewer.ranks.queries.ranks import Ranks
    from stepscope.viewer.ranks.queries.sequences import Aspect
    from stepscope.viewer.store.trace import Trace


def ranks_page(trace: Trace, request: Request) -> RanksPage:
    from stepscope.viewer.ranks.queries.ranks import rank_names, ranks

    found = ranks(trace)
    return RanksPage(
        rows=found.rows,
        compared=found.compared,
        world_size=found.world_size,
        missing=found.missing,
        missing_name=rank_names(found.missing),
        aspects=found.aspects,
        first=found.first,
        slow=found.slow,
        slow_left=found.slow_left,
    )


def difference_page(trace: Trace, request: Request) -> RankDifferencePage:
    from stepscope.viewer.ranks.queries.difference import rank_difference
    from stepscope.viewer.ranks.queries.ranks import TITLES, ranks

    found = ranks(trace)
    differing = next((row.aspect for row in found.aspects if row.state == "differ"), "compile_ids")
    asked = request.text("aspect") or differing
    aspect = next((name for name in TITLES if name == asked), None)
    if aspect is None:
        raise NotThere(f"“{asked[:40]}” is no aspect of ranks: it must be one of {', '.join(TITLES)}.")
    left, right = _sides(found, aspect, request.optional_id("left"), request.optional_id("right"))
    difference = rank_difference(trace, aspect, left.log, right.log)
    return RankDifferencePage(aspect, TITLES[aspect], found.rows, found.aspects, left, right, difference)


def _sides(found: Ranks, aspect: Aspect, left: int | None, right: int | None) -> tuple[RankRow, RankRow]:
    """The logs that were asked for; else those where the ranks begin to differ, else the first two."""
    rows = {row.log: row for row in found.rows}
    first = next((row.first for row in found.aspects if row.aspect == aspect), None)
    usual = [first.left, first.right] if first is not None else [*found.compared, *rows]
    left = usual[0] if left is None else left
    right = next((log for log in reversed(usual[:2]) if log != left), left) if right is None else right
    for log in (left, right):
        if log not in rows:
            raise NotThere(f"This trace holds no log {log}.")
    return rows[left], rows[right]


PAGES = (
    Page("/ranks", "ranks/page.html", "Ranks", RanksPage, ranks_page),
    Page(
        "/ranks/difference",
        "ranks/difference.html",
        "Ranks",
        RankDifferencePage,
        difference_page,
        ("aspect", "left", "right"),
    ),
)
