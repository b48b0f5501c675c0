"""Queries compile-cache lookups: hits, misses, bypass reasons, and how a missed key differs from earlier keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_LOOK_BACK = 40
"""Number of lookups before a miss that are searched for the nearest key."""
_MOST_DIFFERENCES = 12
_LONGEST_VALUE = 300
_MATCH = """
    FROM (SELECT *, (SELECT max(c.frame) FROM compiles c WHERE c.log = o.log AND c.compile_id = o.compile_id) AS frame
          FROM cache_lookups o)
    WHERE ($log IS NULL OR log = $log) AND ($cache IS NULL OR cache = $cache) AND ($state IS NULL OR state = $state)
      AND ($text IS NULL OR contains(lower(concat_ws(' ', compile_id, frame, detail, key, reason)), lower($text)))
"""
_ROWS = f"""
    SELECT record, log, compile_id, cache, state, detail, key, reason, time_saved_ns, components, frame
    {_MATCH} ORDER BY {{order}} LIMIT $limit OFFSET $offset
"""
ORDERS = {
    "compile": "compile_id",
    "frame": "frame",
    "cache": "cache",
    "outcome": "state",
    "key": "key",
    "saved": "time_saved_ns",
    "reason": "reason",
    "record": "record",
}
"""The expressions by which lookups can be sorted."""
_COUNTERS = """
    SELECT m.name, sum(m.number) FROM metrics m JOIN records r ON r.record = m.record
    WHERE (m.name LIKE '%cache_hit_count' OR m.name LIKE '%cache_miss_count') AND ($log IS NULL OR r.log = $log)
    GROUP BY m.name ORDER BY m.name
"""
_BEFORE = f"""
    SELECT m.record, p.record, p.key FROM (SELECT unnest($records) AS record) m
    JOIN cache_lookups o ON o.record = m.record
    JOIN (SELECT record, log, cache, key, row_number() OVER (PARTITION BY log, cache ORDER BY record) AS place
          FROM cache_lookups WHERE components IS NOT NULL) p ON p.log = o.log AND p.cache = o.cache
    JOIN (SELECT record, row_number() OVER (PARTITION BY log, cache ORDER BY record) AS place
          FROM cache_lookups WHERE components IS NOT NULL) q ON q.record = o.record
    WHERE p.place < q.place AND p.place >= q.place - {_LOOK_BACK}
"""
Components = Mapping[str, tuple[str, str]]
"""(hash, value) of each component of a key, by name."""


@dataclass(frozen=True)
class KeyDifference:
    """A component that differs between two keys; `before` or `now` is None if that key lacks the component."""

    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class NearestKey:
    """The earlier lookup whose key has the most components in common with the key of a miss."""

    record: int
    compile_id: str | None
    same: int
    different: int
    differences: list[KeyDifference]
    """First differences, at most 12; empty if the same key was looked up before."""


@dataclass(frozen=True)
class CacheLookup:
    record: int
    log: int
    compile_id: str | None
    cache: str
    state: str
    detail: str | None
    key: str | None
    reason: str | None
    time_saved_ns: int | None
    components: int | None
    """Number of components that the artifact lists; None if it lists none."""
    frame: str | None
    nearest: NearestKey | None = None


@dataclass(frozen=True)
class CacheTotals:
    cache: str
    states: dict[str, int]
    time_saved_ns: int | None


@dataclass(frozen=True)
class BypassReason:
    cache: str
    reason: str
    lookups: int
    first_record: int
    log: int
    compile_id: str | None


@dataclass(frozen=True)
class Caches:
    totals: list[CacheTotals]
    bypasses: list[BypassReason]
    counters: dict[str, int]
    """Sums of the hit and miss counts in compilation metrics, including those of remote caches."""
    rows: list[CacheLookup]
    total: int
    offset: int
    limit: int


def caches(
    trace: Trace,
    log: int | None = None,
    cache: str | None = None,
    state: str | None = None,
    text: str | None = None,
    sort: str | None = None,
    is_down: bool = False,
    offset: int = 0,
    limit: int = 50,
) -> Caches:
    """Return a page of the matching lookups, by default in log order, with totals that only `log` restricts."""
    match = {"log": log, "cache": cache, "state": state, "text": text}
    ordered = _ROWS.format(order=sql.order_by(ORDERS, sort, is_down, "record"))
    rows = sql.rows(trace, ordered, {**match, "limit": limit, "offset": offset})
    lookups = [CacheLookup(*row) for row in rows]
    misses = [row.record for row in lookups if row.state == "miss" and row.components]
    nearest = _nearest(trace, misses) if misses else {}
    counters = sql.rows(trace, _COUNTERS, {"log": log})
    return Caches(
        totals=_totals(trace, log),
        bypasses=_bypasses(trace, log),
        counters={name: int(number) for name, number in counters if number is not None},
        rows=[replace(row, nearest=nearest.get(row.record)) for row in lookups],
        total=sql.rows(trace, f"SELECT count(*) {_MATCH}", match)[0][0],
        offset=offset,
        limit=limit,
    )


def _totals(trace: Trace, log: int | None) -> list[CacheTotals]:
    found: dict[str, dict[str, int]] = {}
    saved: dict[str, int] = {}
    statement = (
        "SELECT cache, state, count(*), sum(time_saved_ns)::BIGINT FROM cache_lookups"
        " WHERE $log IS NULL OR log = $log GROUP BY cache, state ORDER BY count(*) DESC, state"
    )
    for cache, state, count, time_saved in sql.rows(trace, statement, {"log": log}):
        found.setdefault(cache, {})[state] = count
        if time_saved is not None:
            saved[cache] = saved.get(cache, 0) + time_saved
    return [CacheTotals(cache, states, saved.get(cache)) for cache, states in sorted(found.items())]


def _bypasses(trace: Trace, log: int | None) -> list[BypassReason]:
    statement = (
        "SELECT cache, coalesce(reason, 'no reason given'), count(*), min(record), arg_min(log, record),"
        " arg_min(compile_id, record) FROM cache_lookups WHERE state = 'bypass' AND ($log IS NULL OR log = $log)"
        " GROUP BY 1, 2 ORDER BY 3 DESC, 4 LIMIT 50"
    )
    return [BypassReason(*row) for row in sql.rows(trace, statement, {"log": log})]


def _nearest(trace: Trace, misses: list[int]) -> dict[int, NearestKey]:
    before: dict[int, list[int]] = {}
    for miss, record, _ in sql.rows(trace, _BEFORE, {"records": misses}):
        before.setdefault(miss, []).append(record)
    wanted = {*misses, *(record for records in before.values() for record in records)}
    payloads = trace.payloads(sorted(wanted))
    known = {record: _components(payload) for record, payload in payloads.items()}
    hashes = {record: {(name, one[0]) for name, one in found.items()} for record, found in known.items()}
    compiles: dict[int, str | None] = dict(
        sql.rows(
            trace,
            "SELECT record, compile_id FROM cache_lookups WHERE record IN (SELECT unnest($1))",
            [sorted(wanted)],
        )
    )
    found = {}
    for miss, records in before.items():
        other = max(records, key=lambda record: (len(hashes.get(record, set()) & hashes.get(miss, set())), record))
        found[miss] = _difference(other, compiles.get(other), known.get(other, {}), known.get(miss, {}))
    return found


def _difference(record: int, compile_id: str | None, before: Components, now: Components) -> NearestKey:
    names = [name for name in {**before, **now} if before.get(name, ("",))[0] != now.get(name, ("",))[0]]
    differences = [
        KeyDifference(name, *(_short(side[name][1]) if name in side else None for side in (before, now)))
        for name in names[:_MOST_DIFFERENCES]
    ]
    return NearestKey(record, compile_id, len({**before, **now}) - len(names), len(names), differences)


def _components(payload: bytes) -> dict[str, tuple[str, str]]:
    """Return the components of a key, which the payload lists as ``[hash] name: value``."""
    try:
        value: Any = loads(payload)
    except ValueError:
        return {}
    listed = value.get("components") if isinstance(value, dict) else None
    found = {}
    for component in listed if isinstance(listed, list) else ():
        if isinstance(component, str) and component.startswith("["):
            digest, _, rest = component[1:].partition("] ")
            name, _, text = rest.partition(": ")
            found[name] = digest, text
    return found


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
