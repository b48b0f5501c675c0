"""Buffers that held something else before a launch than what was last written to them."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import COLUMNS, value_rows
from stepscope.viewer.values.rows import ValueRow

_COUNTS = ("nan", "positive_infinity", "negative_infinity", "zero")
_DIFFERS = " OR ".join(
    [
        *(f"w.{name} <> v.{name}" for name in _COUNTS),
        *(f"w.{name} IS DISTINCT FROM v.{name}" for name in ("min", "max", "exact_min", "exact_max")),
        "coalesce(abs(w.mean - v.mean) > 1e-3 * greatest(abs(v.mean), v.largest), false)",
        "coalesce(abs(w.std - v.std) > 1e-2 * v.std, false)",
    ]
)
# The version as it stood: its last row before the launch.
_CHANGED = f"""
    WITH pairs AS (
        SELECT v.value AS now, max(w.value) AS was
        FROM value_rows v JOIN arguments a ON a.site = v.site AND a.argument = v.argument
        JOIN value_rows w ON w.call = v.call AND w.site = a.version_site AND w.argument = a.version_argument
         AND w.moment = a.version_moment AND w.part IS NOT DISTINCT FROM v.part
         AND w.item IS NOT DISTINCT FROM coalesce(a.version_item, v.item)
        WHERE v.moment = 'before' AND w.value < v.value
          AND (w.launch < v.launch OR a.version_moment = 'before')
        GROUP BY v.value
    ), changed AS (
        SELECT p.now, p.was, v.log, v.site, v.argument FROM pairs p
        JOIN value_rows v ON v.value = p.now JOIN value_rows w ON w.value = p.was
        WHERE v.nan IS NOT NULL AND w.nan IS NOT NULL AND v.numel = w.numel AND v.looked_at = w.looked_at
          AND v.dtype = w.dtype AND ({_DIFFERS})
    )
    SELECT min(now), arg_min(was, now), count(*) FROM changed GROUP BY log, site, argument ORDER BY 1 LIMIT ?
"""
_ROWS = f"""
    SELECT {COLUMNS}, v.log, v.step, s.graph, a.name, coalesce(a.storage, a.buffer) FROM value_rows v
    JOIN sites s ON s.site = v.site LEFT JOIN arguments a ON a.site = v.site AND a.argument = v.argument
    WHERE list_contains(?, v.value)
"""


@dataclass(frozen=True)
class Changed:
    """An argument of a site whose memory somebody else wrote in between."""

    before: ValueRow
    """What the launch read."""
    written: ValueRow
    """What had been written last."""
    log: int
    step: int
    graph: int
    name: str
    buffer: str | None
    times: int


def changed_values(trace: Trace, most: int = 100) -> list[Changed]:
    """The first change of each argument, in order of time."""
    pairs = sql.rows(trace, _CHANGED, [most])
    if not pairs:
        return []
    found = sql.rows(trace, _ROWS, [sorted({value for now, was, _ in pairs for value in (now, was)})])
    rows = {row.value: row for row in value_rows(trace, [one[:-5] for one in found])}
    facts = {one[0]: one[-5:] for one in found}
    result = []
    for now, was, times in pairs:
        log, step, graph, name, buffer = facts[now]
        result.append(Changed(rows[now], rows[was], log, step, graph, name or "an argument", buffer, times))
    return result
