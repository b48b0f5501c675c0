"""Reads the launches of a trace as calls that can stand beside the calls in a log of PyTorch's DebugMode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from stepscope.viewer.compare.queries.pairs import check_part, logs_of
from stepscope.viewer.compare.readings import Call, Reading, norm_bounds
from stepscope.viewer.compare.rows import Numbers, Wanted
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.graphs.queries.graphs import innermost
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST = 200_000
"""Launches that are compared with a log of DebugMode."""
_NUMBERS = (
    "dtype", "numel", "nan", "positive_infinity", "negative_infinity", "zero", "min", "max", "mean", "std",
)  # fmt: skip
_COUNT = "SELECT count(*) FROM launches WHERE list_contains($1, log) AND ($2 IS NULL OR step = $2)"
# The row of a version is the latest one of its site: calls of a graph repeat the numbers of its sites.
_LAUNCHES = f"""
    WITH wanted AS (
        SELECT launch, site, step FROM launches WHERE list_contains($1, log) AND ($2 IS NULL OR step = $2)
    ), rows AS (
        SELECT v.launch, v.site, v.argument, v.item, v.moment, struct_pack({", ".join(_NUMBERS)}) AS numbers, v.l2,
               v.largest, v.elements
        FROM value_rows v JOIN wanted w ON w.launch = v.launch
        WHERE v.skipped IS NULL AND v.looked_at = v.numel AND v.part IS NULL
    ), earlier AS (
        SELECT w.launch, a.argument, NULL AS item, 'before' AS moment, r.numbers, r.l2, r.largest,
               r.elements
        FROM wanted w JOIN arguments a ON a.site = w.site AND a.role <> 'out'
        ASOF JOIN rows r ON r.site = a.version_site AND r.argument = a.version_argument
             AND r.moment = a.version_moment AND r.item IS NOT DISTINCT FROM a.version_item AND w.launch >= r.launch
        WHERE NOT EXISTS (FROM rows o WHERE o.launch = w.launch AND o.argument = a.argument AND o.moment = 'before')
    )
    SELECT w.launch, w.step, s.kernel, s.stacks, a.name, a.role, a.held, x.moment, x.item, x.numbers, x.l2, x.largest,
           x.elements
    FROM wanted w JOIN sites s ON s.site = w.site JOIN arguments a ON a.site = w.site
    LEFT JOIN (SELECT * EXCLUDE site FROM rows UNION ALL FROM earlier) x
      ON x.launch = w.launch AND x.argument = a.argument
    ORDER BY w.launch, a.argument, x.item
"""


def trace_calls(trace: Trace, side: Wanted) -> list[Call]:
    """Return the launches of a side in their order. Raises StepscopeError if there are too many, or no such step."""
    check_part(trace, side)
    which: list[Any] = [[log for log, _, _ in logs_of(trace, side)], side.step]
    launches = sql.number(trace, _COUNT, which)
    if launches > MOST:
        raise StepscopeError(
            f"{side.trace[0]} has {launches:,} launches, and at most {MOST:,} are compared with a log of DebugMode:"
            f" name one step, as in {side.trace[0]}#step=0."
        )
    rows = sql.named(trace, _LAUNCHES, which)
    return [_call(launch, list(these)) for launch, these in groupby(rows, key=lambda row: int(row["launch"]))]


def _call(launch: int, rows: Sequence[dict[str, Any]]) -> Call:
    read = [row for row in rows if row["moment"] != "after" and _is_read(row)]
    written = [row for row in rows if row["moment"] == "after"]
    first = rows[0]
    return Call(
        launch, first["kernel"], None, tuple(map(_reading, read)), tuple(map(_reading, written)),
        innermost(first["stacks"]), first["step"],
    )  # fmt: skip


def _is_read(row: dict[str, Any]) -> bool:
    return row["role"] != "out" and not (row["role"] == "inout" and row["held"] == "uninitialised")


def _reading(row: dict[str, Any]) -> Reading:
    stored = row["numbers"]
    if stored is None:
        return Reading(row["name"], "", None)
    numbers = Numbers(**stored)
    bounds = norm_bounds(numbers, row["l2"] or 0.0, row["largest"] or 0.0)
    elements = sql.json_value(row["elements"])
    if bounds is not None and elements is not None:
        norm = math.fsum(abs(one) for one in elements)
        bounds = norm, norm
    return Reading(row["name"], numbers.dtype, numbers.numel, (), numbers, bounds)
