"""Queries for inputs of graphs whose memory stays the same from call to call while their values change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.memory.queries.identity import FIRST_CALL
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_INPUTS = 2_000
Storage = tuple[int, int, int]
"""A log, and a storage by the call that first used it and its number there."""
_USED = f"""
    SELECT m.log, m.call, c.graph, s.name, {FIRST_CALL} AS by_call, coalesce(s.met_as, s.storage) AS by_storage
    FROM measured_calls m JOIN layout_storages s ON s.layout = m.layout JOIN calls c ON c.call = m.call
    WHERE s.kind = 'input' AND c.state = 'ok'
"""
# Inputs whose memory a recorded launch writes in any call are left out: the log has their writer.
_INPUTS = f"""
    WITH used AS ({_USED}), written AS (
        SELECT DISTINCT u.log, u.by_call, u.by_storage FROM used u JOIN sites s ON s.graph = u.graph
        JOIN arguments a ON a.site = s.site AND a.role <> 'in' AND coalesce(a.storage, a.buffer, a.name) = u.name
    ), first_reads AS (
        SELECT v.call, coalesce(a.storage, a.buffer, a.name) AS name, min(v.value) AS value
        FROM value_rows v JOIN arguments a ON a.site = v.site AND a.argument = v.argument
        WHERE v.moment = 'before' AND a.held = 'input' AND v.item IS NULL AND v.part IS NULL GROUP BY ALL
    ), read AS (
        SELECT u.log, u.graph, u.name, u.by_call, u.by_storage, v.site, v.argument, v.value, v.step, v.launch, v.digest,
               v.mean, v.std, v.dtype, v.numel
        FROM used u ANTI JOIN written w ON w.log = u.log AND w.by_call = u.by_call AND w.by_storage = u.by_storage
        JOIN first_reads f ON f.call = u.call AND f.name = u.name JOIN value_rows v ON v.value = f.value
        WHERE v.looked_at = v.numel AND v.digest IS NOT NULL
    )
    SELECT log, graph, name, by_call, by_storage, site, argument, any_value(dtype) AS dtype, any_value(numel) AS numel,
           list(value ORDER BY value) AS readings, list(step ORDER BY value) AS steps,
           list(launch ORDER BY value) AS launches, list(digest ORDER BY value) AS digests,
           list(mean ORDER BY value) AS means, list(std ORDER BY value) AS spreads
    FROM read GROUP BY log, graph, name, by_call, by_storage, site, argument
    HAVING count(*) >= $1 AND min(digest) <> max(digest) ORDER BY min(value) LIMIT {MOST_INPUTS}
"""


_OF_STORAGES = f"""
    WITH used AS ({_USED}), asked AS (
        SELECT unnest($logs) AS log, unnest($calls) AS by_call, unnest($storages) AS by_storage
    )
    SELECT DISTINCT log, by_call, by_storage, graph, name FROM used JOIN asked USING (log, by_call, by_storage)
"""


@dataclass(frozen=True)
class OutsideInput:
    """An input of a graph in one memory, as one launch site read it in several calls."""

    log: int
    graph: int
    name: str
    by_call: int
    by_storage: int
    """The storage, by the call that first used it and its number there."""
    site: int
    argument: int
    dtype: str
    numel: int
    readings: list[int]
    """Value rows, one for each call."""
    steps: list[int]
    launches: list[int]
    digests: list[int]
    means: list[float | None]
    spreads: list[float | None]
    """Standard deviations."""

    @property
    def in_storage(self) -> Storage:
        return self.log, self.by_call, self.by_storage


def changed_outside(trace: Trace, least: int) -> list[OutsideInput]:
    """Return the inputs that were read in at least `least` calls from one memory that no recorded launch writes, and
    that did not have the same bits each time, in order of time."""
    return sql.records(OutsideInput, trace, _INPUTS, [least])


def in_memory_of_parameters(trace: Trace, inputs: Sequence[OutsideInput]) -> set[Storage]:
    """Return those storages of inputs that hold a parameter of a module, which any graph of the log reads as one."""
    storages = sorted({one.in_storage for one in inputs})
    asked = {key: [one[at] for one in storages] for at, key in enumerate(("logs", "calls", "storages"))}
    found = sql.rows(trace, _OF_STORAGES, asked) if storages else []
    return {
        (log, by_call, by_storage)
        for log, by_call, by_storage, graph, name in found
        if (known := program_names(trace, graph).get(name)) is not None and known.kind == "parameter"
    }


def trained_logs(trace: Trace) -> set[int]:
    """Return the logs with a graph of a backward pass."""
    return {log for (log,) in sql.rows(trace, "SELECT DISTINCT log FROM graphs WHERE phase = 'backward'")}
