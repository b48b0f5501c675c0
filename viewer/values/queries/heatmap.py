"""Queries for the heat map: launch sites x steps, coloured by the worst class of health of their outputs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.viewer.graphs.queries.graphs import list_graphs
from stepscope.viewer.store import sql
from stepscope.viewer.store.kept import Kept
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import HEALTH_INDEX, health_of, value_row_count
from stepscope.viewer.values.rows import HEALTH, HeatMap, WorstSite

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_COLUMNS = 400
MOST_ROWS = 600
MOST_WORST = 100
MOST_READ = 2_000_000
"""About the number of value rows that are read at once."""
KEPT_BYTES = 24 << 20
"""Maximum size of the maps that an open trace keeps in memory: one byte for each site and step of a log."""
_NO_OUTPUT = 127
KEPT_LOGS = 16
"""Number of logs of which an open trace keeps the sites and steps in memory."""
_SITES = """
    SELECT s.site, s.kernel, s.graph FROM sites s
    JOIN (SELECT site, min(launch) AS first FROM launches WHERE log = ? GROUP BY site) r ON r.site = s.site
    ORDER BY r.first
"""
_STEPS = "SELECT DISTINCT step FROM launches WHERE log = ? ORDER BY step"
# A class and a launch in one number, whose minimum is the first launch of the worst class.
_SHIFT = 52
_WORST = f"min(({HEALTH_INDEX})::BIGINT * (1::BIGINT << {_SHIFT}) + v.launch)"
_OUTPUTS = f"""
    SELECT v.site, v.step, ({HEALTH_INDEX})::BIGINT * (1::BIGINT << {_SHIFT}) + v.launch AS worst FROM value_rows v
    WHERE v.log = ? AND v.moment = 'after' AND v.step BETWEEN ? AND ? AND v.launch IS NOT NULL AND v.site IS NOT NULL
"""
_CLASSES = f"""
    SELECT v.site::INTEGER AS site, v.step, ({HEALTH_INDEX})::TINYINT AS health FROM value_rows v
    WHERE v.log = ? AND v.moment = 'after' AND v.step BETWEEN ? AND ? AND v.launch IS NOT NULL AND v.site IS NOT NULL
"""
_LAUNCH = f"""
    SELECT {_WORST} & ((1::BIGINT << {_SHIFT}) - 1) FROM value_rows v
    WHERE v.log = $1 AND v.moment = 'after' AND list_contains($2, v.site) AND v.step BETWEEN $3 AND $4
"""
_WORST_SITES = f"""
    WITH cells AS (
        SELECT v.site, v.step, {_WORST} AS worst FROM value_rows v
        WHERE v.log = $1 AND v.moment = 'after' AND {HEALTH_INDEX} < $2 GROUP BY v.site, v.step
    ), bad AS (
        SELECT site, min(worst >> {_SHIFT}) AS health FROM cells GROUP BY site
    )
    SELECT b.site, s.kernel, s.graph, {health_of("b.health")} AS health, count(*) AS cells,
           min(c.step) AS first_step, min(c.worst) & ((1::BIGINT << {_SHIFT}) - 1) AS first_launch
    FROM bad b JOIN cells c ON c.site = b.site AND c.worst >> {_SHIFT} = b.health JOIN sites s ON s.site = b.site
    GROUP BY ALL ORDER BY min(b.health), min(c.worst) LIMIT $3
"""


class Window(NamedTuple):
    """A part of the map; None for an end that is not bounded. Sites are given by their position in the order of first
    execution, from 0."""

    first_site: int | None = None
    last_site: int | None = None
    first_step: int | None = None
    last_step: int | None = None


def heat_map(
    trace: Trace,
    log: int,
    window: Window | None = None,
    *,
    most_rows: int = MOST_ROWS,
    most_columns: int = MOST_COLUMNS,
    launches: bool = False,
) -> HeatMap:
    """Return the map of a log, which has no rows if the window has no launch. With `launches`, it has the worst launch
    of each cell."""
    window = window or Window()
    all_sites = _sites(trace, log)
    first_site = min(window.first_site or 0, len(all_sites))
    end_site = len(all_sites) if window.last_site is None else window.last_site + 1
    sites = all_sites[first_site:end_site]
    all_steps = steps_of_log(trace, log)
    steps = steps_between(trace, log, window.first_step, window.last_step)
    start = bisect_left(all_steps, steps[0]) if steps else 0
    rows = bands([graph for _, _, graph in sites], most_rows)
    columns = bands([0] * len(steps), most_columns)
    part = (slice(first_site, first_site + len(sites)), slice(start, start + len(steps)))
    if launches or len(all_sites) * len(all_steps) > KEPT_BYTES // 2:
        ids = [site for site, _, _ in sites]
        cells, worst = _cells(trace, log, _places(ids, rows), _places(steps, columns), (len(rows), len(columns)))
    else:
        cells, worst = _joined(_classes(trace, log)[part], rows, columns), []
    return HeatMap(
        log=log,
        graphs=[graph for graph in list_graphs(trace) if graph.log == log],
        sites=[sites[start][0] for start, _ in rows],
        kernels=[sites[start][1] for start, _ in rows],
        graph_of=[sites[start][2] for start, _ in rows],
        joined_sites=[end - start for start, end in rows],
        first_site=first_site,
        total_sites=len(all_sites),
        steps=[steps[start] for start, _ in columns],
        last_steps=[steps[end - 1] for _, end in columns],
        joined_steps=[end - start for start, end in columns],
        total_steps=len(all_steps),
        classes=list(HEALTH),
        cells=cells,
        launches=worst if launches else [],
        launch_steps=_steps_of(trace, worst) if launches else [],
        moves=_moves(all_steps, steps, len(all_sites), first_site, len(sites)),
    )


def _places(ids: Sequence[int], joined: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the place of each site or step among the bands of neighbours."""
    places = [place for place, (start, end) in enumerate(joined) for _ in range(start, end)]
    return dict(zip(ids, places, strict=True))


def _joined(
    classes: npt.NDArray[Any], rows: Sequence[tuple[int, int]], columns: Sequence[tuple[int, int]]
) -> list[list[int]]:
    """Return the worst class of each cell, which joins neighbours; -1 if there is none."""
    import numpy as np

    if not rows or not columns:
        return [[] for _ in rows]
    worst = np.minimum.reduceat(classes, [start for start, _ in rows], axis=0)
    worst = np.minimum.reduceat(worst, [start for start, _ in columns], axis=1)
    return np.where(worst == _NO_OUTPUT, -1, worst).tolist()  # type: ignore[no-any-return]


def _classes(trace: Trace, log: int) -> npt.NDArray[Any]:
    """Return the worst class of the outputs of each site, in the order of first execution, in each step of a log."""
    return trace.once(_kept).get(log, lambda: _read_classes(trace, log))


def _kept(trace: Trace) -> Kept[npt.NDArray[Any]]:
    return Kept(KEPT_BYTES, lambda _, found: int(found.nbytes))


def _read_classes(trace: Trace, log: int) -> npt.NDArray[Any]:
    import numpy as np

    sites, steps = [site for site, _, _ in _sites(trace, log)], steps_of_log(trace, log)
    worst = np.full(len(sites) * len(steps), _NO_OUTPUT, np.int8)
    sites_at, steps_at = (_Places({number: place for place, number in enumerate(ids)}) for ids in (sites, steps))
    for first, last in _pieces(trace, steps):
        found = sql.columns(trace, _CLASSES, [log, first, last])
        row, column = sites_at.of(found["site"]), steps_at.of(found["step"])
        known = (row >= 0) & (column >= 0)
        np.minimum.at(worst, (row * len(steps) + column)[known], found["health"][known])
    return worst.reshape(len(sites), len(steps))


def _pieces(trace: Trace, steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last step of pieces that can be read at once."""
    each = max(1, len(steps) * MOST_READ // max(1, value_row_count(trace)))
    for start in range(0, len(steps), each):
        some = steps[start : start + each]
        yield some[0], some[-1]


def _cells(
    trace: Trace, log: int, row_of: dict[int, int], column_of: dict[int, int], shape: tuple[int, int]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the class and the launch of the worst output of each cell, -1 if there is none. `row_of` are the rows of
    sites and `column_of` the columns of steps, in order. DuckDB would join and group the outputs more slowly."""
    import numpy as np

    nothing = (1 << 63) - 1
    worst = np.full(shape[0] * shape[1], nothing, np.int64)
    sites_at, steps_at = _Places(row_of), _Places(column_of)
    for first, last in _pieces(trace, list(column_of)):
        found = sql.columns(trace, _OUTPUTS, [log, first, last])
        row, column = sites_at.of(found["site"]), steps_at.of(found["step"])
        known = (row >= 0) & (column >= 0)
        np.minimum.at(worst, (row * shape[1] + column)[known], found["worst"][known])
    worst = worst.reshape(shape)
    is_empty = worst == nothing
    health, launch = worst >> _SHIFT, worst & ((1 << _SHIFT) - 1)
    return np.where(is_empty, -1, health).tolist(), np.where(is_empty, -1, launch).tolist()


class _Places:
    """The places of ids, looked up for whole arrays."""

    def __init__(self, places: dict[int, int]) -> None:
        import numpy as np

        ids = np.fromiter(places, np.int64, len(places))
        order = np.argsort(ids)
        self._ids = ids[order]
        self._places = np.fromiter(places.values(), np.int64, len(places))[order]

    def of(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the place of each id, or -1."""
        import numpy as np

        if not len(self._ids):
            return np.full(len(ids), -1, np.int64)
        first, span = self._ids[0], int(self._ids[-1]) - int(self._ids[0]) + 1
        if span <= 4 * len(self._ids) + 1_000:  # a table is faster than a search, but ids of a log may be far apart
            table = np.full(span, -1, np.int64)
            table[self._ids - first] = self._places
            inside = (ids >= first) & (ids <= self._ids[-1])
            return table[ids - first] if inside.all() else np.where(inside, table[np.where(inside, ids - first, 0)], -1)
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[at] == ids, self._places[at], -1)


def _sites(trace: Trace, log: int) -> list[sql.Row]:
    """Return the launch sites of a log in the order of first execution, each with its kernel and its graph."""
    return trace.once(_read_sites, log, most=KEPT_LOGS)


def _read_sites(trace: Trace, log: int) -> list[sql.Row]:
    return sql.rows(trace, _SITES, [log])


def steps_of_log(trace: Trace, log: int) -> list[int]:
    """Return the steps of a log that have a launch, in order."""
    return trace.once(_steps, log, most=KEPT_LOGS)


def steps_between(trace: Trace, log: int, first: int | None, last: int | None) -> list[int]:
    """Return the steps of a log that have a launch, in order, within bounds; None for an end that is not bounded."""
    steps = steps_of_log(trace, log)
    start = 0 if first is None else bisect_left(steps, first)
    return steps[start : len(steps) if last is None else max(start, bisect_right(steps, last))]


def _steps(trace: Trace, log: int) -> list[int]:
    return [step for (step,) in sql.rows(trace, _STEPS, [log])]


def bands(kinds: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return (start, end) of at most `most` bands of neighbours of about equal length, each of one kind if possible."""
    runs = [len(list(run)) for _, run in groupby(kinds)]
    if len(runs) > most:
        runs = [len(kinds)]
    size = max(1, -(-len(kinds) // most))
    while sum(-(-run // size) for run in runs) > most:
        size += max(1, size // 8)
    found, start = [], 0
    for run in runs:
        found += [(place, min(place + size, start + run)) for place in range(start, start + run, size)]
        start += run
    return found


def _steps_of(trace: Trace, worst: list[list[int]]) -> list[list[int]]:
    ids = sorted({launch for launches in worst for launch in launches if launch >= 0})
    found: dict[int, int] = dict(
        sql.rows(trace, "SELECT launch, step FROM launches WHERE launch IN (SELECT unnest($1::BIGINT[]))", [ids])
    )
    return [[found.get(launch, -1) for launch in launches] for launches in worst]


def _moves(
    all_steps: list[int], steps: list[int], total_sites: int, first_site: int, sites: int
) -> dict[str, dict[str, int]]:
    """Return the parameters of the addresses of neighbouring windows of the same size."""
    moves: dict[str, dict[str, int]] = {}
    if not steps or not sites:
        return moves
    rows = {} if sites == total_sites else {"first_site": first_site, "last_site": first_site + sites - 1}
    columns = {} if len(steps) == len(all_steps) else {"first_step": steps[0], "last_step": steps[-1]}
    at, count = all_steps.index(steps[0]), len(steps)
    if at > 0:
        start = max(0, at - count)
        moves["earlier steps"] = rows | {"first_step": all_steps[start], "last_step": all_steps[start + count - 1]}
    if at + count < len(all_steps):
        end = min(len(all_steps), at + 2 * count)
        moves["later steps"] = rows | {"first_step": all_steps[end - count], "last_step": all_steps[end - 1]}
    if first_site > 0:
        start = max(0, first_site - sites)
        moves["launches before"] = columns | {"first_site": start, "last_site": start + sites - 1}
    if first_site + sites < total_sites:
        end = min(total_sites, first_site + 2 * sites)
        moves["launches after"] = columns | {"first_site": end - sites, "last_site": end - 1}
    return moves


def worst_launch(trace: Trace, log: int, window: Window) -> int | None:
    """Return the first launch in a window with the worst output; None if no output was read there."""
    end = None if window.last_site is None else window.last_site + 1
    sites = [site for site, _, _ in _sites(trace, log)[window.first_site or 0 : end]]
    first, last = window.first_step or 0, window.last_step
    found: int | None = sql.number(trace, _LAUNCH, [log, sites, first, (1 << 62) if last is None else last])
    return found


def worst_sites(trace: Trace, log: int) -> list[WorstSite]:
    """Return the launch sites whose output was ever worse than zeros, worst first, then in order of time."""
    return trace.once(_worst_sites, log, most=KEPT_LOGS)


def _worst_sites(trace: Trace, log: int) -> list[WorstSite]:
    return sql.records(WorstSite, trace, _WORST_SITES, [log, HEALTH.index("zero"), MOST_WORST])


def has_outputs(trace: Trace, log: int) -> bool:
    """Return whether the log has statistics of any output."""
    return trace.once(_has_outputs, log, most=KEPT_LOGS)


def _has_outputs(trace: Trace, log: int) -> bool:
    return sql.row(trace, "FROM value_rows WHERE log = ? AND moment = 'after' LIMIT 1", [log]) is not None
