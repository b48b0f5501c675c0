"""The range, and the number of distinct values, of each statistic of the arguments of launch sites.

DuckDB would count distinct values with a hash table for each statistic, which takes three times as long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.tracer.schema.statistics import NONFINITE, STATISTICS
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import HEALTH_INDEX
from stepscope.viewer.values.rows import HEALTH, Health, Spread

if TYPE_CHECKING:
    import numpy.typing as npt

_SPREAD_OF = ("numel", *STATISTICS)
_COUNTED = {name: f"CASE WHEN NOT coalesce(v.at_least, false) THEN v.{name} END AS {name}" for name in NONFINITE}
_COLUMNS = ", ".join(_COUNTED.get(name, f"v.{name}") for name in _SPREAD_OF)
_NO_ITEM = -1
_ROWS = f"""
    SELECT v.log, v.site, v.argument, coalesce(v.item, {_NO_ITEM}) AS item,
           coalesce(list_position($2, v.part), 0) AS part, v.moment = 'after' AS is_after,
           ({HEALTH_INDEX})::TINYINT AS health, {_COLUMNS}
    FROM value_rows v WHERE list_contains($1, v.site)
"""
_KEYS = ("log", "site", "argument", "item", "part", "is_after")


class ArgumentSpreads(NamedTuple):
    """What the rows of one argument have in common, before or after all launches of its site."""

    log: int
    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str
    rows: int
    health: Health
    spreads: list[Spread]


def argument_spreads(trace: Trace, sites: Sequence[int]) -> list[ArgumentSpreads]:
    """Return the spreads of the statistics that any row has, for each argument, item, part and moment."""
    import numpy as np

    parts = trace.once(_parts)
    found = sql.columns(trace, _ROWS, [list(sites), parts])
    count = len(found["site"])
    if not count:
        return []
    order = np.lexsort([found[name] for name in reversed(_KEYS)])
    keys = [found[name][order] for name in _KEYS]
    is_first = np.ones(count, bool)
    is_first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    starts = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    spreads: list[list[Spread]] = [[] for _ in starts]
    for name in _SPREAD_OF:
        for at, spread in _spreads(name, np.ma.asarray(found[name])[order], starts, group):
            spreads[at].append(spread)
    worst = np.minimum.reduceat(found["health"][order], starts)
    heads = zip(*(key[starts].tolist() for key in keys), strict=True)
    rows = np.diff(starts, append=count).tolist()
    return [
        ArgumentSpreads(
            log, site, argument, None if item == _NO_ITEM else item, parts[part - 1] if part else None,
            "after" if is_after else "before", length, HEALTH[health], of_group,
        )
        for (log, site, argument, item, part, is_after), length, health, of_group in zip(
            heads, rows, worst.tolist(), spreads, strict=True
        )
    ]  # fmt: skip


def _spreads(name: str, column: Any, starts: npt.NDArray[Any], group: npt.NDArray[Any]) -> list[tuple[int, Spread]]:
    """Return the spread of a statistic for each group of rows in which one has it."""
    import numpy as np

    values, known = np.ma.getdata(column), ~np.ma.getmaskarray(column)
    if values.dtype.kind == "f":
        known &= ~np.isnan(values)
    values, of = values[known], group[known]
    if not len(values):
        return []
    firsts = np.flatnonzero(np.diff(of, prepend=-1))
    groups, low, high = of[firsts], np.minimum.reduceat(values, firsts), np.maximum.reduceat(values, firsts)
    distinct = np.ones(len(groups), np.int64)
    varies = np.zeros(len(starts), bool)
    varies[groups] = low != high
    if varies.any():
        values, of = values[varies[of]], of[varies[of]]
        order = np.lexsort((values, of))
        values, of = values[order], of[order]
        is_new = np.ones(len(values), bool)
        is_new[1:] = (values[1:] != values[:-1]) | (of[1:] != of[:-1])
        distinct[low != high] = np.bincount(of[is_new], minlength=len(starts))[groups[low != high]]
    rows = zip(groups.tolist(), low.tolist(), high.tolist(), distinct.tolist(), strict=True)
    return [(at, Spread(name, *spread)) for at, *spread in rows]


def _parts(trace: Trace) -> list[str]:
    found = sql.rows(trace, "SELECT DISTINCT part FROM value_rows WHERE part IS NOT NULL ORDER BY part")
    return [part for (part,) in found]
