"""Queries the storages that steps left behind, and the buffers that every step leaves behind again."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from stepscope.viewer.memory.queries.graph_index import graph_index, launches_of
from stepscope.viewer.memory.queries.leak_rows import GrowthRow, LeftBehindRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_STEPS, LEAST_FREED_LATE = 3, 6
"""Minimum number of successive steps that must leave the same buffer behind, and of those whose buffers were freed at
the end."""
_MOST_HOLDERS = 8
_ELEMENT = re.compile(r"(?:^|\bin )((?:attribute |(?:closure|local) variable )?[A-Za-z_][\w.]*)\[.*\]( of .*)$")
_SIZE = re.compile(r" \([^()]* of \d+\)$")
"""What is said of the dictionary of an element: `` (dict of 6)``."""
_THROUGH_GRAPH = "the autograd graph of a tensor in "
_MOST_ALIVE = 10_000
"""Maximum number of storages that are read from an incomplete log, latest steps first."""
_LEFT = """
    SELECT b.log, b.call, b.storage, c.step, l.graph, l.function, s.name AS buffer, s.kind, s.storage_bytes, s.device,
           s.site, b.holders, b.freed_by_collection, b.tensor_bytes
    FROM left_behind b JOIN layouts l ON l.layout = b.layout JOIN measured_calls c ON c.call = b.call
    JOIN layout_storages s ON s.layout = b.layout AND s.storage = b.storage
    WHERE b.at_step IS NULL ORDER BY s.storage_bytes DESC, b.call, b.storage
"""
_BROKEN_OFF = """
    SELECT f.log FROM lifetime_logs f JOIN logs l ON l.log = f.log
    WHERE NOT f.looked_for_growth AND NOT l.complete
"""
_HELD = """held AS (
        SELECT log, call, storage, arg_max(holders, at_step) AS holders, arg_max(tensor_bytes, at_step) AS tensor_bytes
        FROM left_behind WHERE at_step IS NOT NULL GROUP BY log, call, storage
    )"""
"""What held storages in the last step in which it was looked for."""
_ALIVE = f"""
    WITH {_HELD},
    alive AS (
        SELECT v.log, v.call, v.storage, m.step, l.graph, l.function, s.name AS buffer, s.kind, s.storage_bytes,
               s.device, s.site, b.holders, b.tensor_bytes
        FROM survivors v LEFT JOIN held b ON b.log = v.log AND b.call = v.call AND b.storage = v.storage
        JOIN layouts l ON l.layout = v.layout JOIN measured_calls m ON m.call = v.call
        JOIN calls c ON c.call = v.call AND c.state <> 'captured'
        JOIN layout_storages s ON s.layout = v.layout AND s.storage = v.storage
        WHERE v.died_ns IS NULL AND v.made AND list_contains($1, v.log)
          AND m.step < (SELECT max(step) FROM measured_calls WHERE log = v.log)
        QUALIFY count(DISTINCT m.step) OVER (PARTITION BY v.log, l.function, s.name, s.kind) >= $2
    )
    SELECT * REPLACE (coalesce(holders, '[]') AS holders), NULL AS freed_by_collection FROM alive
    QUALIFY row_number() OVER (PARTITION BY log ORDER BY step DESC) <= $3
    ORDER BY storage_bytes DESC, call, storage
"""
_FREED_LATE = f"""
    WITH {_HELD},
    ended AS (SELECT log, max(start_ns + duration_ns) AS end_ns FROM calls GROUP BY log)
    SELECT v.log, v.call, v.storage, m.step, l.graph, l.function, s.name AS buffer, s.kind, s.storage_bytes, s.device,
           s.site, coalesce(b.holders, '[]') AS holders, NULL AS freed_by_collection, b.tensor_bytes
    FROM survivors v LEFT JOIN held b ON b.log = v.log AND b.call = v.call AND b.storage = v.storage
    JOIN ended e ON e.log = v.log AND v.died_ns > e.end_ns JOIN layouts l ON l.layout = v.layout
    JOIN graphs g ON g.graph = l.graph AND g.phase = 'forward' JOIN measured_calls m ON m.call = v.call
    JOIN calls c ON c.call = v.call AND c.state <> 'captured'
    JOIN layout_storages s ON s.layout = v.layout AND s.storage = v.storage
    WHERE v.made QUALIFY count(DISTINCT m.step) OVER (PARTITION BY v.log, l.function, s.name, s.kind) >= $1
    ORDER BY s.storage_bytes DESC, v.call, v.storage
"""
_STEPS = """
    SELECT DISTINCT m.step FROM measured_calls m JOIN layouts l ON l.layout = m.layout
    WHERE list_contains(?, l.graph) AND l.function = ? ORDER BY m.step
"""
_DIED = """
    SELECT c.step, v.died_ns FROM survivors v JOIN measured_calls c ON c.call = v.call
    JOIN layouts l ON l.layout = v.layout JOIN layout_storages s ON s.layout = v.layout AND s.storage = v.storage
    WHERE list_contains(?, l.graph) AND l.function = ? AND s.name = ? AND v.died_ns IS NOT NULL
      AND v.died_ns <= (SELECT max(start_ns + duration_ns) FROM calls WHERE log = v.log)
"""


def left_behind(trace: Trace) -> list[LeftBehindRow] | None:
    """Return the storages of earlier steps that were alive at the end, largest first; None if no process checked.

    A killed process could not check. Its incomplete log gives the storages without a recorded death of buffers that
    at least `LEAST_STEPS` steps left, with unknown holders.
    """
    broken_off = [number for (number,) in sql.rows(trace, _BROKEN_OFF)]
    looked = sql.number(trace, "SELECT bool_or(looked_for_growth) FROM lifetime_logs")
    if not looked and not broken_off:
        return None
    found = sql.named(trace, _LEFT, json=("holders",))
    if broken_off:
        found += sql.named(trace, _ALIVE, [broken_off, LEAST_STEPS, _MOST_ALIVE], json=("holders",))
    return _placed(trace, found)


def freed_late(trace: Trace) -> list[GrowthRow]:
    """Return the buffers of forward graphs in training of which each step left one behind, none of which was freed
    before the last call ended, and all of which were freed before the recording ended."""
    if not sql.has_rows(trace, "survivors"):
        return []
    found = sql.named(trace, _FREED_LATE, [LEAST_FREED_LATE], json=("holders",))
    rows = [row for row, _ in _growing(trace, _placed(trace, found), 1)]  # the last step may free after its calls
    return [row for row in rows if len(row.steps) >= LEAST_FREED_LATE]


def _placed(trace: Trace, found: list[dict[str, Any]]) -> list[LeftBehindRow]:
    """Return the storages with the lines that made them, largest first."""
    index = cache(partial(graph_index, trace))
    result = []
    for row in found:
        places = index(row["graph"])
        row["site"] = places.writer(row["buffer"], row["site"])
        result.append(LeftBehindRow(**row, source=places.source(row["site"])))
    return sorted(result, key=lambda row: -row.storage_bytes)


def growth(trace: Trace) -> list[GrowthRow] | None:
    """Return the buffers that each of the last steps left behind, most bytes per step first; None if none checked.

    A buffer counts if at least `LEAST_STEPS` successive last runs of its graph left it, and if no earlier one was
    freed after as many steps, as in a sliding window. Graphs of one frame are counted together because a growing
    list may fail the frame's guards and recompile it in each step.
    """
    found = grown_storages(trace)
    return None if found is None else [row for row, _ in found]


def leak_of(row: GrowthRow) -> Hashable:
    """Return a key that is equal for buffers of one leak: those that the same variables hold, some of which may hold a
    buffer through an autograd graph. If a garbage collection freed them, it is the object that the first holder is a
    part of, through which the reference cycle leads."""
    if not row.holders:
        return row.log, row.graph, row.function, row.buffer, row.kind
    variables = sorted({_variable(holder.removeprefix(_THROUGH_GRAPH)) for holder in row.holders})
    if row.freed_by_collection:
        return row.log, _SIZE.sub("", variables[0]).rpartition(" of ")[2]
    return row.log, tuple(variables), row.freed_by_collection


def holders_of(rows: Sequence[GrowthRow]) -> list[str]:
    """Return the holders of the buffers of one leak, each once, without the autograd graphs that others hold; a
    variable alone for several of its elements."""
    found = dict.fromkeys(holder for row in rows for holder in row.holders)
    direct = [
        one for one in found if not one.startswith(_THROUGH_GRAPH) or one.removeprefix(_THROUGH_GRAPH) not in found
    ]
    elements = Counter(map(_variable, direct))
    return [*dict.fromkeys(one if elements[_variable(one)] == 1 else _variable(one) for one in direct)]


def _variable(holder: str) -> str:
    """Return ``acts of __main__ (dict of 6)`` for ``list of 8 in acts['a'] of __main__ (dict of 6)``."""
    element = _ELEMENT.search(holder)
    return element[1] + element[2] if element is not None else holder


def grown_storages(trace: Trace) -> list[tuple[GrowthRow, list[LeftBehindRow]]] | None:
    """Return the rows of `growth`, each with the storages that it counts."""
    return trace.once(_grown_storages)


def _grown_storages(trace: Trace) -> list[tuple[GrowthRow, list[LeftBehindRow]]] | None:
    found = left_behind(trace)
    return None if found is None else _growing(trace, found)


def _growing(
    trace: Trace, found: Sequence[LeftBehindRow], longer: int = 0
) -> list[tuple[GrowthRow, list[LeftBehindRow]]]:
    """Return the buffers that were left by more steps, by `longer`, than freed ones were kept for."""
    rows = []
    frames = _frames(trace)
    for group in _grouped(found, frames):
        alike = [graph for graph, frame in frames.items() if frame == frames[group[0].graph]]
        steps = _last_steps(trace, group[0], alike, {row.step for row in group})
        if len(steps) >= LEAST_STEPS and steps[-1] - steps[0] + 1 > _longest_kept(trace, group[0], alike) + longer:
            kept = set(steps)
            storages = [row for row in group if row.step in kept]
            rows.append((_growth(trace, storages, steps), storages))
    return sorted(rows, key=lambda one: -one[0].bytes_per_step)


def _frames(trace: Trace) -> dict[int, Hashable]:
    """Return a key for each graph that is equal for the graphs compiled from the same frame and phase."""
    graphs = sql.rows(trace, "SELECT graph, log, compile_id, phase FROM graphs")
    return {
        graph: (log, compile_id.rpartition("/")[0], phase) if compile_id else graph
        for graph, log, compile_id, phase in graphs
    }


def _grouped(rows: Sequence[LeftBehindRow], frames: Mapping[int, Hashable]) -> list[list[LeftBehindRow]]:
    groups: defaultdict[Hashable, list[LeftBehindRow]] = defaultdict(list)
    for row in rows:
        if row.kind != "input":
            groups[row.log, frames[row.graph], row.function, row.buffer, row.kind].append(row)
    return list(groups.values())


def _last_steps(trace: Trace, of: LeftBehindRow, graphs: list[int], left: set[int]) -> list[int]:
    """Return the last successive steps that left the buffer; the very last step may be incomplete and is optional."""
    ran = [step for (step,) in sql.rows(trace, _STEPS, [graphs, of.function])]
    if ran and ran[-1] not in left:
        ran.pop()
    steps: list[int] = []
    while ran and ran[-1] in left:
        steps.append(ran.pop())
    return steps[::-1]


def _longest_kept(trace: Trace, of: LeftBehindRow, graphs: list[int]) -> int:
    """Return the maximum number of steps for which a freed instance of the buffer was kept."""
    died = sql.rows(trace, _DIED, [graphs, of.function, of.buffer])
    starts = sql.rows(trace, "SELECT start_ns, step FROM steps WHERE log = ? ORDER BY start_ns", [of.log])
    if not died or not starts:
        return 0
    begins = [start_ns for start_ns, _ in starts]
    kept = [starts[max(bisect_right(begins, died_ns) - 1, 0)][1] - made for made, died_ns in died]
    return int(max(kept))


def _growth(trace: Trace, rows: Sequence[LeftBehindRow], steps: list[int]) -> GrowthRow:
    last = max(rows, key=lambda row: (row.step, row.call))
    kept = ("log", "graph", "function", "buffer", "kind", "source", "site")
    size = sum(row.storage_bytes for row in rows)
    freed = {row.freed_by_collection for row in rows}
    launches = launches_of(trace, last.call)
    places = graph_index(trace, last.graph)
    return GrowthRow(
        **{name: getattr(last, name) for name in kept},
        steps=steps,
        storages=len(rows),
        storage_bytes=size,
        bytes_per_step=size // len(steps),
        holders=list(dict.fromkeys(holder for row in rows for holder in row.holders))[:_MOST_HOLDERS],
        freed_by_collection=None if None in freed else all(freed),
        tensor_bytes=next((one.tensor_bytes for one in rows if one.tensor_bytes is not None), None),
        kernel=places.kernel(last.site),
        launch=next((launch for launch, site, _ in launches if site == last.site), None),
    )
