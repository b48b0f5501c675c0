"""Queries for forward calls that ran again in a backward pass and wrote other values than the first time."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.memory.queries.identity import FIRST_CALL
from stepscope.viewer.memory.queries.recomputed_runs import AGAIN
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import COLUMNS, StoredValue, value_rows
from stepscope.viewer.values.rows import ValueRow

MOST_PAIRS = 1_000
"""Number of calls that ran again and are compared."""
# Layers of one graph have different parameters, so the two calls share more storages with each other than with others.
_PAIRS = f"""
    WITH again AS ({AGAIN}), ran AS (
        SELECT c.call, c.log, c.graph, c.step, m.layout, m.local_call, a.local_call IS NOT NULL AS is_again FROM calls c
        JOIN measured_calls m ON m.call = c.call
        LEFT JOIN again a ON a.log = c.log AND a.local_call = c.local_call
        WHERE c.state = 'ok' AND c.graph IN (SELECT o.graph FROM calls o SEMI JOIN again b
                                             ON b.log = o.log AND b.local_call = o.local_call)
          AND c.call IN (SELECT call FROM value_rows)
    ), used AS (
        SELECT m.call, m.log, m.graph, m.step, m.is_again, {FIRST_CALL} AS by_call,
               coalesce(s.met_as, s.storage) AS by_storage
        FROM ran m JOIN layout_storages s ON s.layout = m.layout AND s.kind = 'input' AND s.storage_bytes > 0
    ), shared AS (
        SELECT n.call AS again, f.call AS first, count(*) AS storages
        FROM (SELECT *, unnest([step, step - 1]) AS first_step FROM used WHERE is_again) n
        JOIN used f ON f.log = n.log AND f.graph = n.graph AND f.step = n.first_step AND f.call < n.call
         AND f.by_call = n.by_call AND f.by_storage = n.by_storage
        WHERE NOT f.is_again GROUP BY ALL
    )
    SELECT again, max(first) AS first FROM shared s
    WHERE storages = (SELECT max(o.storages) FROM shared o WHERE o.again = s.again)
    GROUP BY again HAVING count(*) = 1 ORDER BY again LIMIT {MOST_PAIRS}
"""
_DIFFERS = """
    CASE WHEN contains(o.dtype, 'float') THEN
        o.nan <> v.nan OR o.positive_infinity <> v.positive_infinity OR o.negative_infinity <> v.negative_infinity
        OR o.zero <> v.zero OR coalesce(abs(o.mean - v.mean) > 1e-3 * v.largest, false)
        OR coalesce(abs(o.std - v.std) > 1e-3 * v.std, false)
        OR coalesce(greatest(abs(o.min - v.min), abs(o.max - v.max)) > 1e-3 * v.largest, false)
    ELSE o.digest IS DISTINCT FROM v.digest OR o.zero <> v.zero OR o.min IS DISTINCT FROM v.min
        OR o.max IS DISTINCT FROM v.max END
"""
_OTHER = f"""
    WITH pair AS (SELECT unnest($1) AS first, unnest($2) AS again), read AS (
        SELECT v.*, coalesce(a.storage, a.buffer, a.name) AS name, a.held
        FROM value_rows v JOIN arguments a ON a.site = v.site AND a.argument = v.argument
        WHERE (list_contains($1, v.call) OR list_contains($2, v.call)) AND v.nan IS NOT NULL AND v.looked_at = v.numel
          AND v.part IS NULL
        QUALIFY row_number() OVER (PARTITION BY v.call, v.site, v.argument, v.item, v.moment ORDER BY v.value) = 1
    )
    SELECT p.again, o.value AS was, v.value AS now, v.name, v.moment = 'before' AND v.held = 'input' AS is_input,
           v.moment = 'after' AND coalesce(s.kind <> 'input' AND s.dead IS NULL, false) AS is_kept
    FROM pair p JOIN read o ON o.call = p.first
    JOIN read v ON v.call = p.again AND v.site = o.site AND v.argument = o.argument AND v.moment = o.moment
     AND v.item IS NOT DISTINCT FROM o.item AND v.numel = o.numel AND v.dtype = o.dtype
    JOIN measured_calls m ON m.call = p.again
    LEFT JOIN layout_storages s ON s.layout = m.layout AND s.name = v.name
    WHERE o.digest IS DISTINCT FROM v.digest AND ({_DIFFERS}) ORDER BY v.value
"""
_ROWS = f"SELECT {COLUMNS} FROM value_rows v WHERE v.value IN (SELECT unnest(?::BIGINT[]))"
_CALL = "SELECT log, step, graph FROM calls WHERE call = ?"


@dataclass(frozen=True)
class OtherValue:
    """A tensor that had other values when its call ran again."""

    was: ValueRow
    now: ValueRow
    name: str


@dataclass(frozen=True)
class OtherActivations:
    """A call that ran again in a backward pass and left other activations for it."""

    log: int
    step: int
    graph: int
    kept: OtherValue
    """The first activation that differs and outlives the call."""
    cause: OtherValue
    """The first tensor that differs: an input, or what a launch wrote."""
    is_input: bool
    """Whether `cause` came into the call."""


def other_activations(trace: Trace) -> list[OtherActivations]:
    """Return the calls that ran again and left other activations, in order of time. Values of floating-point tensors
    count as other only if their statistics differ by more than a thousandth, because sums may be added up in another
    order."""
    pairs = sql.rows(trace, _PAIRS) if sql.has_rows(trace, "calls_in_backward") else []
    if not pairs:
        return []
    found = sql.rows(trace, _OTHER, [[first for _, first in pairs], [again for again, _ in pairs]])
    values = sorted({value for _, was, now, *_ in found for value in (was, now)})
    rows = {row.value: row for row in value_rows(trace, sql.records(StoredValue, trace, _ROWS, [values]))}
    result = []
    for call in dict.fromkeys(again for again, *_ in found):
        others = [
            (OtherValue(rows[was], rows[now], name), is_input, is_kept)
            for again, was, now, name, is_input, is_kept in found
            if again == call
        ]
        kept = next((one for one, _, is_kept in others if is_kept), None)
        if kept is not None:
            log, step, graph = sql.row(trace, _CALL, [call]) or (0, 0, 0)
            result.append(OtherActivations(log, step, graph, kept, others[0][0], others[0][1]))
    return result
