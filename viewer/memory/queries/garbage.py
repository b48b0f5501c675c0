"""Queries the storages that died only in garbage collections, which reference cycles had kept until then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_index import graph_index
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_STEPS = 3
_MOST_HOLDERS = 8
_INTERVALS = """
    SELECT log, unnest(from_json(start_ns, '["BIGINT"]')) AS start_ns, unnest(from_json(end_ns, '["BIGINT"]')) AS end_ns
    FROM collections
"""
_DIED = f"""
    WITH collected AS ({_INTERVALS}), died AS (
        SELECT v.log, v.call, v.storage, m.step, l.graph, l.function, s.name AS buffer, s.site, v.storage_bytes,
               c.start_ns AS collection
        FROM survivors v JOIN layouts l ON l.layout = v.layout JOIN measured_calls m ON m.call = v.call
        JOIN layout_storages s ON s.layout = v.layout AND s.storage = v.storage
        LEFT JOIN collected c ON c.log = v.log AND v.died_ns BETWEEN c.start_ns AND c.end_ns AND v.died_call IS NULL
        WHERE v.made AND v.died_ns IS NOT NULL
    ), collections_of AS (
        SELECT *, sum(storage_bytes) FILTER (collection IS NOT NULL)
                  OVER (PARTITION BY log, collection) AS together FROM died
    )
    SELECT log, graph, function, buffer, any_value(site) AS site, count(collection) AS storages,
           sum(storage_bytes) FILTER (collection IS NOT NULL)::BIGINT AS storage_bytes,
           count(DISTINCT step) FILTER (collection IS NOT NULL) AS steps,
           count(DISTINCT collection) AS collections, max(together)::BIGINT AS most_bytes,
           arg_max(call, call) FILTER (collection IS NOT NULL) AS call,
           arg_max(step, call) FILTER (collection IS NOT NULL) AS step
    FROM collections_of GROUP BY log, graph, function, buffer
    HAVING count(DISTINCT step) FILTER (collection IS NOT NULL) >= $1 AND 2 * count(collection) >= count(*)
    ORDER BY log, storage_bytes DESC, graph, buffer
"""
_HELD = f"""
    WITH collected AS ({_INTERVALS}), held AS (
        SELECT log, unnest(from_json(held_call, '["BIGINT"]')) AS local_call,
               unnest(from_json(held_index, '["BIGINT"]')) AS storage,
               unnest(from_json(holders, '[["VARCHAR"]]')) AS holders
        FROM collections
    )
    SELECT l.graph, s.name, h.holders FROM held h
    JOIN measured_calls m ON m.log = h.log AND m.local_call = h.local_call
    JOIN layouts l ON l.layout = m.layout
    JOIN layout_storages s ON s.layout = m.layout AND s.storage = h.storage
    JOIN survivors v ON v.call = m.call AND v.storage = h.storage
    JOIN collected c ON c.log = h.log AND v.died_ns BETWEEN c.start_ns AND c.end_ns
    ORDER BY h.local_call DESC
"""
_LAUNCH = "SELECT min(launch) FROM launches WHERE call = ? AND site = ?"


@dataclass(frozen=True)
class CollectedBuffer:
    """A buffer whose storages of several steps died only in garbage collections."""

    log: int
    graph: int
    function: str
    buffer: str
    storages: int
    storage_bytes: int
    """Bytes of these storages together."""
    steps: int
    collections: int
    most_bytes: int
    """Maximum bytes of storages of all buffers that died in one collection."""
    call: int
    """The last call whose storage died in a collection."""
    step: int
    launch: int | None
    kernel: str | None
    source: SourceLine | None
    holders: Sequence[str]
    """What held most of the storages before they died; empty if it was not searched."""


def collected_buffers(trace: Trace) -> list[CollectedBuffer]:
    """Return the buffers of which the storages of at least three steps died in garbage collections, and not fewer than
    died otherwise, with most bytes first."""
    if not sql.has_rows(trace, "collections"):
        return []
    found = sql.named(trace, _DIED, [LEAST_STEPS])
    held: defaultdict[tuple[int, str], list[Sequence[str]]] = defaultdict(list)
    for graph, name, holders in sql.rows(trace, _HELD) if found else ():
        held[graph, name].append(holders or ())
    return [_buffer(trace, row, usual_holders(held[row["graph"], row["buffer"]])) for row in found]


def usual_holders(of_storages: Sequence[Sequence[str]]) -> list[str]:
    """Return what held most of the storages: the newest one may also have a variable of the running step."""
    count = Counter(holder for holders in of_storages for holder in dict.fromkeys(holders))
    most = max(count.values(), default=0)
    return [holder for holder, times in count.items() if times == most][:_MOST_HOLDERS]


def _buffer(trace: Trace, row: dict[str, object], holders: Sequence[str]) -> CollectedBuffer:
    places = graph_index(trace, int(str(row["graph"])))
    site = places.writer(str(row["buffer"]), row.pop("site"))  # type: ignore[arg-type]
    return CollectedBuffer(
        **row,  # type: ignore[arg-type]
        launch=sql.number(trace, _LAUNCH, [row["call"], site]) if site is not None else None,
        kernel=places.kernel(site),
        source=places.source(site),
        holders=holders,
    )
