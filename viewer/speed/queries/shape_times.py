"""Queries what the launches of a site take at each of the sizes that its graph takes as numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.graphs.queries.argument_bytes import argument_bytes
from stepscope.viewer.graphs.queries.graphs import site_in_call
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

# Sites of collectives wait for other ranks, and what the user's kernels do may depend on the data.
_TIMED = """
    WITH quiet AS MATERIALIZED (SELECT unnest($steps) AS step), shapes AS (
        SELECT assignment, string_agg(symbol || '=' || value, ',' ORDER BY symbol) AS shape
        FROM symbol_values WHERE log = $log AND try_cast(value AS BIGINT) IS NOT NULL GROUP BY assignment
    ), known AS (
        SELECT t.site, bool_and(t.device = 'cpu') AS on_host FROM tensors t JOIN sites s ON s.site = t.site
        WHERE t.log = $log AND s.kind IN ('cpp', 'triton', 'extern', 'fallback') GROUP BY t.site
    ), timed AS (
        SELECT l.site, h.shape, l.launch,
               coalesce(l.device_duration_ns, CASE WHEN k.on_host THEN l.duration_ns END) AS ns
        FROM launches l JOIN quiet q ON q.step = l.step JOIN known k ON k.site = l.site
        JOIN calls c ON c.call = l.call AND c.state = 'ok'
        JOIN call_symbols a ON a.call = l.call JOIN shapes h ON h.assignment = a.assignment
        WHERE l.log = $log
    )
"""
_SHAPES = f"""
    {_TIMED}
    SELECT site, shape, count(*) AS launches, quantile_disc(ns, 0.1)::BIGINT AS quick_ns,
           median(ns)::BIGINT AS usual_ns, sum(ns)::BIGINT AS spent_ns, min(launch) AS launch
    FROM timed WHERE ns IS NOT NULL GROUP BY site, shape HAVING count(*) >= $least ORDER BY site, shape
"""
_TURNS = f"""
    {_TIMED}, turns AS (
        SELECT shape IS DISTINCT FROM lag(shape) OVER (ORDER BY launch) AS is_turn FROM timed
        WHERE site = $site AND (shape = $first OR shape = $second) AND ns IS NOT NULL
    )
    SELECT count(*) FILTER (is_turn) - 1 FROM turns
"""
_CALL = "SELECT c.graph, c.local_call FROM launches l JOIN calls c ON c.call = l.call WHERE l.launch = ?"
_SITE = "SELECT graph, kernel, stacks FROM sites WHERE site = ?"


class ShapeTime(NamedTuple):
    """The launches of a site at one size."""

    site: int
    shape: str
    """The symbols of the graph with their values: ``s0=4096,s1=8``."""
    launches: int
    quick_ns: int
    """What a tenth of the launches do not exceed."""
    usual_ns: int
    """The median."""
    spent_ns: int
    """All launches together."""
    launch: int
    """The first launch."""

    @property
    def sizes(self) -> dict[str, int]:
        """Return the values by symbol."""
        pairs = (pair.partition("=") for pair in self.shape.split(","))
        return {symbol: int(value) for symbol, _, value in pairs}


class ShapeSite(NamedTuple):
    graph: int
    kernel: str
    source: SourceLine | None


def shape_times(trace: Trace, log: int, steps: Sequence[int], least: int) -> dict[int, list[ShapeTime]]:
    """Return the sizes with at least so many launches in these steps whose time is known, by site."""
    found: defaultdict[int, list[ShapeTime]] = defaultdict(list)
    if sql.has_rows(trace, "symbol_values"):
        for one in sql.records(ShapeTime, trace, _SHAPES, {"log": log, "steps": list(steps), "least": least}):
            found[one.site].append(one)
    return found


def turns(trace: Trace, log: int, steps: Sequence[int], first: ShapeTime, second: ShapeTime) -> int:
    """Return how often the launches of a site change from one size to the other in these steps."""
    asked = {"site": first.site, "first": first.shape, "second": second.shape}
    return int(sql.rows(trace, _TURNS, {"log": log, "steps": list(steps), **asked})[0][0])


def moves_no_more(trace: Trace, first: ShapeTime, second: ShapeTime) -> bool:
    """Return whether a launch at the first size reads and writes no more bytes than one at the second size."""
    pairs = zip(_moved(trace, first), _moved(trace, second), strict=True)
    return all(one is not None and other is not None and one <= other for one, other in pairs)


def _moved(trace: Trace, one: ShapeTime) -> tuple[int | None, int | None]:
    ((graph, call),) = sql.rows(trace, _CALL, [one.launch])
    return argument_bytes(site_in_call(trace, graph, one.site, call).arguments)


def shape_site(trace: Trace, site: int) -> ShapeSite:
    """Return what a site launches, and for which line."""
    graph, kernel, stacks = sql.rows(trace, _SITE, [site])[0]
    line = next((stack[-1] for stack in sql.json_value(stacks) or () if stack), None)
    return ShapeSite(graph, kernel, SourceLine(**line) if line else None)
