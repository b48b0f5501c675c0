"""Queries compile-time spans: a time window at the resolution of a screen, and totals by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from stepscope.viewer.compiles.queries.folded_clock import FoldedClock, Gap, folded_clock
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

SORTS = ("self", "total", "count", "longest", "name")
_ORDERS = {
    "self": "sum(self_ns) DESC",
    "total": "sum(duration_ns) DESC",
    "count": "count(*) DESC",
    "longest": "max(duration_ns) DESC",
    "name": "name",
}
_MOST_MARKS = 2000
MOST_CLOCKS = 64
_LANES = """
    SELECT s.log, s.thread, max(s.depth), max(l.rank), max(l.path), count(*) FROM (
        SELECT log, thread, depth FROM spans UNION ALL SELECT log, thread, depth FROM span_marks
    ) s JOIN logs l ON l.log = s.log WHERE $log IS NULL OR s.log = $log
    GROUP BY s.log, s.thread ORDER BY s.log, s.thread
"""
_WINDOW = """
    FROM spans WHERE ($log IS NULL OR log = $log) AND start_unix_ns <= $stop AND start_unix_ns + duration_ns >= $start
"""
_WIDE = f"""
    SELECT log, thread, depth, name, compile_id, start_unix_ns, start_unix_ns + duration_ns, 1
    {_WINDOW} AND duration_ns >= $pixel ORDER BY duration_ns DESC LIMIT $most
"""
_NARROW = f"""
    SELECT log, thread, depth, arg_max(name, duration_ns), arg_max(compile_id, duration_ns),
           min(start_unix_ns), max(start_unix_ns + duration_ns), count(*)
    {_WINDOW} AND duration_ns < $pixel GROUP BY log, thread, depth, (start_unix_ns - $start) // $pixel
    ORDER BY count(*) DESC LIMIT $most
"""
_MARKS = f"""
    SELECT log, thread, depth, name, compile_id, unix_ns, kind, arguments FROM span_marks
    WHERE ($log IS NULL OR log = $log) AND unix_ns BETWEEN $start AND $stop
    ORDER BY hash(unix_ns) LIMIT {_MOST_MARKS}
"""


@dataclass(frozen=True)
class FlameLane:
    """The rows of one thread of one log."""

    log: int
    thread: int
    depth: int
    """Depth of the deepest span."""
    rank: int | None
    path: str
    events: int


@dataclass(frozen=True)
class FlameColumns:
    """Spans as parallel columns; spans within one pixel are merged into one with `count` > 1 and the longest's name."""

    lane: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    """Index into `names`."""
    compile: list[int] = field(default_factory=list)
    """Index into `compiles`; -1 for a span outside of compiles."""
    start_ns: list[int] = field(default_factory=list)
    """Nanoseconds since the first event, like all times here, with long gaps shortened as on the chart."""
    duration_ns: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class FlameMark:
    """An instant event, or the start of a span whose end is not in the log."""

    lane: int
    depth: int
    name: str
    compile_id: str | None
    ns: int
    kind: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Flame:
    """A time window of the flame chart."""

    end_ns: int
    """End of the whole chart, which starts at 0."""
    window_start_ns: int
    window_end_ns: int
    lanes: list[FlameLane]
    names: list[str]
    compiles: list[str]
    spans: FlameColumns
    marks: list[FlameMark]
    binned: bool
    """Whether spans were merged, so that a narrower window would show more."""
    gaps: list[Gap]


@dataclass(frozen=True)
class SpanTotal:
    name: str
    count: int
    total_ns: int
    self_ns: int
    longest_ns: int
    longest_log: int
    longest_compile_id: str | None
    longest_start_ns: int


@dataclass(frozen=True)
class CompileTimes:
    """The two sums of compile time, which differ because the spans of a compile begin before its frame."""

    compiles: int
    compiles_ns: int | None
    """Time of all compiles together, each from its frame on, as on the overview; None if unknown."""
    outermost_ns: int
    """Time of the spans that are in no other one, as in the table of steps."""


def compile_times(trace: Trace, log: int | None = None) -> CompileTimes:
    found = sql.rows(
        trace,
        "SELECT count(*), sum(duration_ns)::BIGINT, (SELECT coalesce(sum(duration_ns), 0)::BIGINT FROM spans"
        " WHERE depth = 0 AND ($log IS NULL OR log = $log)) FROM compiles WHERE $log IS NULL OR log = $log",
        {"log": log},
    )
    return CompileTimes(*found[0])


def flame(
    trace: Trace, log: int | None = None, start_ns: int | None = None, end_ns: int | None = None, width: int = 1600
) -> Flame | None:
    """Return the window from `start_ns` to `end_ns` after the first event for `width` pixels; None without events."""
    clock = trace.once(folded_clock, log, most=MOST_CLOCKS)
    if clock is None:
        return None
    end = clock.end_ns
    lanes = [FlameLane(*row) for row in sql.rows(trace, _LANES, {"log": log})]
    start = min(max(0, start_ns or 0), end)
    stop = end if end_ns is None else min(max(start + 1, end_ns), end)
    width = max(1, width)
    pixel = max(1, (stop - start) // width)
    rows_deep = sum(lane.depth + 1 for lane in lanes) or 1
    asked = {
        "log": log,
        "start": clock.unfold(start),
        "stop": clock.unfold(stop),
        "pixel": pixel,
        "most": width * rows_deep,
    }
    found = sql.rows(trace, _WIDE, asked) + sql.rows(trace, _NARROW, asked)
    places = {(lane.log, lane.thread): index for index, lane in enumerate(lanes)}
    names, compiles, columns = _columns(found, places, clock)
    without_window = {name: value for name, value in asked.items() if name not in ("pixel", "most")}
    marks = [
        FlameMark(places[of, thread], depth, name, compile_id, clock.fold(at), kind, sql.json_value(arguments) or {})
        for of, thread, depth, name, compile_id, at, kind, arguments in sql.rows(trace, _MARKS, without_window)
    ]
    binned = any(count > 1 for count in columns.count)
    return Flame(end, start, stop, lanes, names, compiles, columns, marks, binned, clock.gaps)


def _columns(
    found: list[sql.Row], places: Mapping[tuple[int, int], int], clock: FoldedClock
) -> tuple[list[str], list[str], FlameColumns]:
    names: dict[str, int] = {}
    compiles: dict[str, int] = {}
    columns = FlameColumns()
    for of, thread, depth, name, compile_id, start, stop, count in sorted(found, key=itemgetter(5)):
        columns.lane.append(places[of, thread])
        columns.depth.append(depth)
        columns.name.append(names.setdefault(name, len(names)))
        columns.compile.append(-1 if compile_id is None else compiles.setdefault(compile_id, len(compiles)))
        columns.start_ns.append(clock.fold(start))
        columns.duration_ns.append(clock.fold(stop) - clock.fold(start))
        columns.count.append(count)
    return list(names), list(compiles), columns


def span_totals(trace: Trace, log: int | None = None, sort: str = "self") -> list[SpanTotal]:
    """Sum spans by name; the total counts a span twice if it is nested in a span of the same name."""
    found = sql.rows(
        trace,
        "SELECT name, count(*), sum(duration_ns)::BIGINT, sum(self_ns)::BIGINT, max(duration_ns),"
        " arg_max(log, duration_ns), arg_max(compile_id, duration_ns), arg_max(start_unix_ns, duration_ns)"
        f" FROM spans WHERE $log IS NULL OR log = $log GROUP BY name ORDER BY {_ORDERS[sort]}, name LIMIT 1000",
        {"log": log},
    )
    clock = trace.once(folded_clock, log, most=MOST_CLOCKS)
    totals = [SpanTotal(*row) for row in found]
    return [replace(one, longest_start_ns=clock.fold(one.longest_start_ns)) for one in totals if clock]
