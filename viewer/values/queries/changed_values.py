"""Queries for buffers whose values before a launch differ from those that were last written to them."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.tracer.schema.statistics import NONFINITE
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import COLUMNS, StoredValue, value_rows
from stepscope.viewer.values.rows import ValueRow

_DIFFERS = " OR ".join(
    [
        *(f"w.{name} <> v.{name}" for name in (*NONFINITE, "zero")),
        *(f"w.{name} IS DISTINCT FROM v.{name}" for name in ("min", "max", "exact_min", "exact_max")),
        "coalesce(abs(w.mean - v.mean) > 1e-3 * greatest(abs(v.mean), v.largest), false)",
        "coalesce(abs(w.std - v.std) > 1e-2 * v.std, false)",
    ]
)
# `was` is the last row of the version that the launch read.
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
    ), first AS (
        SELECT min(now) AS now, arg_min(was, now) AS was, count(*) AS times FROM changed GROUP BY log, site, argument
    )
    SELECT f.now, f.was, v.log, v.step, s.graph, coalesce(nullif(a.name, ''), 'an argument') AS name,
           coalesce(a.storage, a.buffer) AS buffer, f.times
    FROM first f JOIN value_rows v ON v.value = f.now JOIN sites s ON s.site = v.site
    LEFT JOIN arguments a ON a.site = v.site AND a.argument = v.argument ORDER BY f.now LIMIT ?
"""
_ROWS = f"SELECT {COLUMNS} FROM value_rows v WHERE list_contains(?, v.value)"


@dataclass(frozen=True)
class ChangedValue:
    """An argument of a launch site whose memory was changed by something that is not in the log."""

    before: ValueRow
    """Values that the launch read."""
    written: ValueRow
    """Values that were written last."""
    log: int
    step: int
    graph: int
    name: str
    buffer: str | None
    times: int


def changed_values(trace: Trace, most: int = 100) -> list[ChangedValue]:
    """Return the first change of each argument, at most `most` of them, in order of time."""
    changes = sql.named(trace, _CHANGED, [most])
    if not changes:
        return []
    values = sorted({change[side] for change in changes for side in ("now", "was")})
    rows = {row.value: row for row in value_rows(trace, sql.records(StoredValue, trace, _ROWS, [values]))}
    return [ChangedValue(rows[change.pop("now")], rows[change.pop("was")], **change) for change in changes]
