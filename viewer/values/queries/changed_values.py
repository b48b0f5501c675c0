"""Queries for buffers whose values before a launch differ from those that were last written to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.tracer.schema.statistics import NONFINITE
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import values_of
from stepscope.viewer.values.rows import ValueRow

_DIFFERS = " OR ".join(
    [
        *(f"w.{name} <> v.{name}" for name in (*NONFINITE, "zero")),
        *(f"w.{name} IS DISTINCT FROM v.{name}" for name in ("min", "max", "exact_min", "exact_max")),
        "coalesce(abs(w.mean - v.mean) > 1e-3 * greatest(abs(v.mean), v.largest), false)",
        "coalesce(abs(w.std - v.std) > 1e-2 * v.std, false)",
        # two sites, or two arguments of one, may read a tensor in another order or other parts of it
        "v.version_site = v.site AND v.version_argument = v.argument AND v.digest <> w.digest",
    ]
)
_COMPARED = (*NONFINITE, "zero", "min", "max", "exact_min", "exact_max", "mean", "std", "largest", "digest")
# A row of an input after its launch is that of a custom operator, which may have changed the input.
_READ_AGAIN = """
    (v.moment = 'before' OR v.moment = 'after' AND a.role = 'in'
     AND EXISTS (FROM sites s WHERE s.site = v.site AND s.kind = 'fallback'))
"""
# A launch reads the last row of its version: written before the launch, or read before this reading. A call lies within
# a step, so that whole steps are compared in parts.
_CHANGED = f"""
    WITH part AS (
        SELECT value, log, site, argument, call, launch, moment, item, coalesce(part, '') AS part,
               nan IS NOT NULL AS read, numel, looked_at, dtype, {", ".join(_COMPARED)}
        FROM value_rows WHERE value BETWEEN $1 AND $2
    ), v AS (
        SELECT p.* EXCLUDE (item), a.version_site, a.version_argument, a.version_moment,
               coalesce(a.version_item, p.item, -1) AS item,
               CASE a.version_moment WHEN 'before' THEN p.value ELSE p.launch END AS key
        FROM part p JOIN arguments a ON a.site = p.site AND a.argument = p.argument
        WHERE p.read AND a.version_site IS NOT NULL AND {_READ_AGAIN.replace("v.", "p.")}
    ), w AS (
        SELECT p.* EXCLUDE (item), coalesce(p.item, -1) AS item,
               CASE p.moment WHEN 'before' THEN p.value ELSE p.launch END AS key
        FROM part p
    )
    SELECT min(v.value) AS now, arg_min(w.value, v.value) AS was, count(*) AS times, v.site, v.argument
    FROM v ASOF JOIN w ON w.call = v.call AND w.site = v.version_site AND w.argument = v.version_argument
     AND w.moment = v.version_moment AND w.part = v.part AND w.item = v.item AND v.key > w.key
    WHERE w.read AND v.numel = w.numel AND v.looked_at = w.looked_at AND v.dtype = w.dtype AND ({_DIFFERS})
    GROUP BY v.log, v.site, v.argument
"""
_AGAIN = f"""
    SELECT 1 FROM value_rows v JOIN arguments a ON a.site = v.site AND a.argument = v.argument
    WHERE (v.moment = 'after' OR a.version_site <> v.site) AND {_READ_AGAIN} LIMIT 1
"""
_STEPS = "SELECT min(value), max(value) FROM value_rows GROUP BY log, step ORDER BY 1"
_PLACES = """
    SELECT v.value AS now, v.log, v.step, s.graph, coalesce(nullif(a.name, ''), 'an argument') AS name,
           coalesce(a.storage, a.buffer) AS buffer
    FROM value_rows v JOIN sites s ON s.site = v.site
    LEFT JOIN arguments a ON a.site = v.site AND a.argument = v.argument WHERE v.value IN (SELECT unnest(?::BIGINT[]))
"""
PART = 300_000
"""About the number of value rows that are compared at once."""


@dataclass(frozen=True)
class ChangedValue:
    """An argument of a launch site whose memory was changed by something that is not in the log."""

    before: ValueRow
    """Values that the launch read, or that a custom operator left in its input."""
    written: ValueRow
    """Values that were written last."""
    log: int
    step: int
    graph: int
    name: str
    buffer: str | None
    times: int


def reads_again(trace: Trace) -> bool:
    """Return whether tensors were read again before launches, as `--verify-before` does."""
    return sql.row(trace, _AGAIN) is not None


def changed_values(trace: Trace, most: int = 100) -> list[ChangedValue]:
    """Return the first change of each argument, at most `most` of them, in order of time."""
    firsts: dict[tuple[int, int], tuple[int, int]] = {}
    times: Counter[tuple[int, int]] = Counter()
    for start, end in step_parts(trace):
        for now, was, count, *place in sql.rows(trace, _CHANGED, [start, end]):
            firsts.setdefault((place[0], place[1]), (now, was))
            times[place[0], place[1]] += count
    found = sorted((now, was, times[place]) for place, (now, was) in firsts.items())[:most]
    if not found:
        return []
    rows = values_of(trace, (value for now, was, _ in found for value in (now, was)))
    places = {one.pop("now"): one for one in sql.named(trace, _PLACES, [[now for now, _, _ in found]])}
    return [ChangedValue(rows[now], rows[was], **places[now], times=count) for now, was, count in found]


def step_parts(trace: Trace) -> Iterator[tuple[int, int]]:
    """Yield the first and the last value row of parts of the trace, each of which consists of whole steps."""
    first = last = -1
    for start, end in sql.rows(trace, _STEPS):
        if first >= 0 and end - first >= PART:
            yield first, last
            first = -1
        first, last = start if first < 0 else first, end
    if first >= 0:
        yield first, last
