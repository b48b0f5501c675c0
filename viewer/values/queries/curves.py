"""Query for the statistics of an argument over all launches of a site."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.tracer.schema.statistics import STATISTICS
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import (
    COLUMNS,
    HEALTH_INDEX,
    LIMITS,
    StoredValue,
    chosen,
    value_rows,
)
from stepscope.viewer.values.rows import ValueCurve

MOST_POINTS = 4000
_WHERE = """
    v.site = $1 AND v.argument = $2 AND v.item IS NOT DISTINCT FROM $3 AND v.part IS NOT DISTINCT FROM $4
    AND v.moment = $5
"""
_IDS = f"SELECT v.value, {HEALTH_INDEX} FROM value_rows v WHERE {_WHERE} ORDER BY v.value"
_ROWS = f"SELECT {COLUMNS} FROM value_rows v WHERE v.value IN (SELECT unnest(?::BIGINT[])) ORDER BY v.value"
_NAME = """
    SELECT s.kernel, a.name, s.log FROM sites s
    LEFT JOIN arguments a ON a.site = s.site AND a.argument = $2 WHERE s.site = $1
"""


class _Named(NamedTuple):
    kernel: str
    name: str | None
    log: int


def value_curve(
    trace: Trace, site: int, argument: int, item: int | None, part: str | None, moment: str
) -> ValueCurve | None:
    """Return the curves, or None if the argument was never read. At most `MOST_POINTS` launches are chosen evenly, and
    those with NaN or infinities."""
    named = sql.record(_Named, trace, _NAME, [site, argument])
    ids = sql.rows(trace, _IDS, [site, argument, item, part, moment])
    if named is None or not ids:
        return None
    found = sql.records(StoredValue, trace, _ROWS, [chosen([(value, health) for value, health in ids], MOST_POINTS)])
    rows = value_rows(trace, found)
    dtype = rows[-1].dtype
    return ValueCurve(
        log=named.log,
        site=site,
        argument=argument,
        item=item,
        part=part,
        moment=moment,
        name=named.name or f"argument {argument}",
        kernel=named.kernel,
        dtype=dtype,
        limit=LIMITS.get(dtype),
        launch=[row.launch for row in rows],
        step=[row.step for row in found],
        columns={name: [getattr(row, name) for row in rows] for name in STATISTICS},
    )
