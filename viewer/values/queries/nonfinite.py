"""Queries for the first NaN and infinities: launches that created them, inputs that had them, and equal rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.tracer.schema.statistics import NONFINITE
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import launch_text
from stepscope.viewer.values.queries.values import COLUMNS, StoredValue, value_rows
from stepscope.viewer.values.rows import ValueRow

MOST_IN_ALL = 2000
"""Maximum number of events of all logs, besides the first one of each log."""
MOST_STEPS = 1000
"""Maximum number of steps that an event names."""
_NAN = "{v}.nan > 0"
_INFINITY = "({v}.positive_infinity > 0 OR {v}.negative_infinity > 0)"
_POSITIVE = "{v}.positive_infinity > 0"
_ANY = f"({' OR '.join(f'{{v}}.{name} > 0' for name in NONFINITE)})"
_EQUAL = " AND ".join(f"v.{name} = o.{name}" for name in NONFINITE)
# A launch is tainted if one of its inputs was bad already, by its own row or by the row of the version that it read.
_MADE = """
    WITH bad AS (
        SELECT v.value, v.log, v.launch, v.call, v.site, v.step FROM value_rows v
        WHERE v.moment = 'after' AND {made} AND NOT {spared}
    ), read AS (
        SELECT b.launch, b.call, a.* FROM (SELECT DISTINCT launch, call, site FROM bad) b
        JOIN arguments a ON a.site = b.site AND a.role <> 'out'
    ), tainted AS (
        SELECT r.launch FROM read r JOIN value_rows v
          ON v.launch = r.launch AND v.argument = r.argument AND v.moment = 'before'
        WHERE {taint}
        UNION
        SELECT r.launch FROM read r JOIN value_rows v
          ON v.call = r.call AND v.site = r.version_site AND v.argument = r.version_argument
         AND v.moment = r.version_moment AND (r.version_item IS NULL OR v.item = r.version_item)
        WHERE {taint} AND (v.launch < r.launch OR (v.launch = r.launch AND v.moment = 'before'))
    )
    SELECT min(b.value) AS value, b.log, b.site, count(DISTINCT b.launch), count(DISTINCT b.step), min(b.launch),
           list_sort(list_distinct(list(b.step)))[:{most_steps}]
    FROM bad b ANTI JOIN tainted t ON t.launch = b.launch
    GROUP BY b.log, b.site
"""
_COUNTED = f"""min(v.value) AS value, v.log, v.site, count(DISTINCT v.launch), count(DISTINCT v.step), min(v.launch),
    list_sort(list_distinct(list(v.step)))[:{MOST_STEPS}]"""
# Inputs that an earlier launch of the call wrote with a NaN are left out if they were read after that launch.
_CAME_IN = f"""
    SELECT {_COUNTED} FROM value_rows v LEFT JOIN arguments a ON a.site = v.site AND a.argument = v.argument
    WHERE v.moment = 'before' AND {_NAN.format(v="v")}
      AND (a.version_site IS NULL OR a.version_moment = 'before' OR NOT EXISTS (
          SELECT 1 FROM value_rows w
          WHERE w.call = v.call AND w.site = a.version_site AND w.argument = a.version_argument
            AND w.moment = a.version_moment AND w.launch < v.launch AND {_NAN.format(v="w")}))
    GROUP BY v.log, v.site, v.argument
    UNION ALL
    SELECT {_COUNTED} FROM input_rows v WHERE {_NAN.format(v="v")} GROUP BY v.log, v.site, v.argument
"""
# Each rank has a log: the events of one hide no events of another, as the first ones of all logs precede second ones.
_FIRST = """
    SELECT e.* EXCLUDE (turn) FROM (
        SELECT *, row_number() OVER (PARTITION BY log ORDER BY value) AS turn FROM ({events})
    ) e
    QUALIFY e.turn = 1 OR (e.turn <= {most} AND row_number() OVER (ORDER BY e.turn, e.value) <= {most_in_all})
    ORDER BY e.value
"""
_SAME = f"""
    SELECT {COLUMNS} FROM value_rows v JOIN value_rows o ON o.value = $1
    WHERE v.log = o.log AND v.value < o.value AND v.launch < o.launch AND v.dtype = o.dtype AND v.numel = o.numel
      AND v.looked_at = o.looked_at AND v.part IS NOT DISTINCT FROM o.part
      AND {_EQUAL}
      AND v.zero = o.zero AND v.min IS NOT DISTINCT FROM o.min AND v.max IS NOT DISTINCT FROM o.max
      AND coalesce(abs(v.mean - o.mean) <= 1e-4 * greatest(abs(o.mean), o.largest), v.mean IS NULL AND o.mean IS NULL)
      AND coalesce(abs(v.std - o.std) <= 1e-3 * o.std, v.std IS NULL AND o.std IS NULL)
    ORDER BY v.moment, v.value DESC LIMIT 1
"""
_SAME_WITHIN = f"""
    SELECT {COLUMNS} FROM value_rows v JOIN value_rows o ON o.value = $1
    WHERE list_contains($2, v.call) AND v.moment = 'after' AND v.numel = o.numel AND {_EQUAL}
      AND v.min IS NOT DISTINCT FROM o.min AND v.max IS NOT DISTINCT FROM o.max
    ORDER BY v.value DESC LIMIT 1
"""
_ROW = f"""
    SELECT {COLUMNS} FROM value_rows v WHERE v.value = $1
    UNION ALL
    SELECT {COLUMNS} FROM input_rows v WHERE v.value = $1
"""
_LAUNCH = """
    SELECT l.launch, l.step, l.launch - f.first + 1 AS ordinal, f.launches AS "of", g.rank,
           coalesce(l.start_ns - g.monotonic_ns + g.unix_ns, 0) AS time_unix_ns
    FROM launches l JOIN logs g ON g.log = l.log
    JOIN (SELECT min(launch) AS first, count(*) AS launches FROM launches
          WHERE log = (SELECT log FROM launches WHERE launch = $1)
            AND step = (SELECT step FROM launches WHERE launch = $1)) f ON true
    WHERE l.launch = $1
"""

_INFINITE_SITES = f"SELECT DISTINCT v.site FROM value_rows v WHERE v.moment = 'after' AND {_INFINITY.format(v='v')}"
_WRITTEN = "SELECT count(*) FROM value_rows WHERE log = ? AND moment = 'after' AND nan > 0"


@dataclass(frozen=True)
class Event:
    """The first bad row of a launch site, with the numbers of its bad launches and steps."""

    value: int
    log: int
    site: int
    launches: int
    steps: int
    launch: int
    in_steps: list[int]
    """First of its bad steps, in ascending order."""


@dataclass(frozen=True)
class LaunchPlace:
    """Position of a launch in its step, from 1, and its time."""

    launch: int
    step: int | None
    ordinal: int | None
    of: int | None
    rank: int | None
    time_unix_ns: int

    @property
    def text(self) -> str:
        """The position as in ``launch 61 of step 2``."""
        return launch_text(self.launch, self.step)


def nan_made(trace: Trace, most: int) -> list[Event]:
    """Return the first launch of each site that wrote NaN although no input is known to have one, up to `most` of each
    log."""
    nan = _NAN.format(v="v")
    return _events(trace, _MADE.format(made=nan, spared="false", taint=nan, most_steps=MOST_STEPS), most)


def infinite_sites(trace: Trace) -> list[int]:
    """Return the launch sites that wrote an infinity."""
    return [site for (site,) in sql.rows(trace, _INFINITE_SITES)]


def infinity_made(trace: Trace, most: int, spared: Iterable[int], *, positive: bool = False) -> list[Event]:
    """Return the first launch of each site, without those of `spared`, that wrote an infinity and no NaN although no
    input is known to be bad. With `positive`, only +inf counts."""
    made = f"{(_POSITIVE if positive else _INFINITY).format(v='v')} AND v.site NOT IN (SELECT unnest($1::BIGINT[]))"
    nan, taint = _NAN.format(v="v"), _ANY.format(v="v")
    events = _MADE.format(made=made, spared=nan, taint=taint, most_steps=MOST_STEPS)
    return _events(trace, events, most, [sorted(spared)])


def infinite_scalars(trace: Trace, most: int) -> list[Event]:
    """Return the first launch of each site that wrote +inf to a tensor of one element although no input is known to
    have NaN or +inf."""
    plus, nan = _POSITIVE.format(v="v"), _NAN.format(v="v")
    made, taint = f"v.numel = 1 AND {plus}", f"({nan} OR {plus})"
    return _events(trace, _MADE.format(made=made, spared=nan, taint=taint, most_steps=MOST_STEPS), most)


def nan_came_in(trace: Trace, most: int) -> list[Event]:
    """Return the first launch of each argument that had NaN when its call first read it, inputs of calls included."""
    return _events(trace, _CAME_IN, most)


def writes_nan(trace: Trace, log: int) -> bool:
    """Return whether a launch of a log wrote a NaN."""
    return bool(sql.number(trace, _WRITTEN, [log]))


def _events(trace: Trace, events: str, most: int, parameters: Sequence[Any] = ()) -> list[Event]:
    first = _FIRST.format(events=events, most=most, most_in_all=MOST_IN_ALL)
    return [Event(*row) for row in sql.rows(trace, first, parameters)]


def value_row(trace: Trace, value: int) -> ValueRow:
    return value_rows(trace, sql.records(StoredValue, trace, _ROW, [value]))[0]


def same_before(trace: Trace, value: int) -> ValueRow | None:
    """Return the latest earlier row of a tensor of the same form with the same statistics, preferably of an output."""
    found = value_rows(trace, sql.records(StoredValue, trace, _SAME, [value]))
    return found[0] if found else None


def same_within(trace: Trace, value: int, calls: list[int]) -> ValueRow | None:
    """Return the last row of an output of `calls` with the same statistics."""
    found = value_rows(trace, sql.records(StoredValue, trace, _SAME_WITHIN, [value, calls]))
    return found[0] if found else None


def launch_place(trace: Trace, launch: int) -> LaunchPlace:
    return sql.record(LaunchPlace, trace, _LAUNCH, [launch]) or LaunchPlace(launch, None, None, None, None, 0)
