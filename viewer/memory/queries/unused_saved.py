"""Queries what several forward passes saved for a backward pass that did not come, and that piled up. What the last
step saved counts only if it was freed, because the recording may have ended before the backward pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_index import graph_index
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_CALLS = 6
"""Minimum number of calls of a graph whose saved tensors were alive together."""
_MOST_STORAGES = 100_000
_SAVED = """
    SELECT v.log, l.graph, s.name AS buffer, v.storage_bytes, m.step, c.start_ns,
           coalesce(v.died_ns, 9223372036854775807) AS died_ns,
           (SELECT any_value(b.holders) FROM left_behind b
            WHERE b.log = v.log AND b.call = v.call AND b.storage = v.storage AND b.holders <> '[]') AS holders
    FROM survivors v JOIN layouts l ON l.layout = v.layout JOIN graphs g ON g.graph = l.graph AND g.phase = 'forward'
    JOIN calls c ON c.call = v.call AND c.state = 'ok' JOIN measured_calls m ON m.call = v.call
    JOIN layout_storages s ON s.layout = v.layout AND s.storage = v.storage AND s.kind <> 'input'
    WHERE v.made AND NOT v.met_by_backward AND coalesce(
        v.died_ns > c.start_ns + c.duration_ns, m.step < (SELECT max(step) FROM measured_calls e WHERE e.log = v.log)
    )
    ORDER BY v.log, l.graph, s.name, c.start_ns LIMIT $1
"""
_CALLED_AT = """
    SELECT s.file, s.line, s.function, s.code
    FROM call_sites s JOIN graphs g ON g.log = s.log AND g.local_graph = s.graph JOIN logs l ON l.log = s.log
    WHERE g.graph = $1 AND s.time_unix_ns - l.unix_ns + l.monotonic_ns BETWEEN $2 AND $3
    ORDER BY s.time_unix_ns LIMIT 1
"""
_RECORDED_WITHIN_NS = 10_000_000
"""The line of a call is recorded when it begins, up to the precision of the clocks."""


class _Storage(NamedTuple):
    log: int
    graph: int
    buffer: str
    storage_bytes: int
    step: int
    start_ns: int
    died_ns: int
    """The end of time for a storage that was not freed during the recording."""
    holders: str | None
    """JSON list of what held it when that was looked for; None if nothing was found."""


@dataclass(frozen=True)
class PiledUp:
    """What calls of one graph saved, at the moment at which most of it was alive."""

    log: int
    graph: int
    buffers: list[str]
    calls: int
    storage_bytes: int
    first_step: int
    last_step: int
    holders: list[str]
    """What held most of these storages when that was looked for."""
    called_at: SourceLine | None
    """The line that makes the first of these calls; None if it had called the graph before, or is unknown."""


def piled_up(trace: Trace) -> list[PiledUp]:
    """Return, for each forward graph, the longest series of calls whose saved tensors were alive together although no
    backward pass used them; results of the program do not count, which may be kept on purpose."""
    groups: defaultdict[tuple[int, int, str], list[_Storage]] = defaultdict(list)
    for one in sql.records(_Storage, trace, _SAVED, [_MOST_STORAGES]):
        groups[one.log, one.graph, one.buffer].append(one)
    found: defaultdict[tuple[int, int], list[list[_Storage]]] = defaultdict(list)
    for (log, graph, buffer), storages in groups.items():
        series = max(_together(storages), key=len, default=[])
        if len(series) >= LEAST_CALLS and _is_saved(trace, graph, buffer):
            found[log, graph].append(series)
    return [_pile(trace, log, graph, series) for (log, graph), series in found.items()]


def _together(storages: Sequence[_Storage]) -> Iterator[list[_Storage]]:
    """Yield the storages in order of their calls, cut where an earlier one was freed before the next was made."""
    series: list[_Storage] = []
    first_death_ns = 0
    for one in storages:
        if series and first_death_ns < one.start_ns:
            yield series
            series = []
        first_death_ns = min(first_death_ns, one.died_ns) if series else one.died_ns
        series.append(one)
    yield series


def _is_saved(trace: Trace, graph: int, buffer: str) -> bool:
    """Return whether a buffer, or another one that takes over its memory, is saved and is no result of the program."""
    known = program_names(trace, graph)
    kinds = {known[name].kind for name in (buffer, *graph_index(trace, graph).other_names(buffer)) if name in known}
    return "saved" in kinds and "output" not in kinds


def _pile(trace: Trace, log: int, graph: int, series: Sequence[Sequence[_Storage]]) -> PiledUp:
    longest = max(series, key=len)
    size = sum(one.storage_bytes for storages in series for one in storages)
    steps = longest[0].step, longest[-1].step
    at = _called_at(trace, graph, longest[0].start_ns)
    found = Counter(one.holders for storages in series for one in storages if one.holders is not None)
    holders = orjson.loads(found.most_common(1)[0][0]) if found else []
    return PiledUp(log, graph, [storages[0].buffer for storages in series], len(longest), size, *steps, holders, at)


def _called_at(trace: Trace, graph: int, start_ns: int) -> SourceLine | None:
    """Return the line that called a graph for the first time at about this moment."""
    around = [graph, start_ns - _RECORDED_WITHIN_NS, start_ns + _RECORDED_WITHIN_NS]
    return next((SourceLine(*row) for row in sql.rows(trace, _CALLED_AT, around)), None)
