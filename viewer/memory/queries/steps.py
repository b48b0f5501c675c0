"""Queries live bytes over the steps of a run, drawn equally wide so that a compiling step does not hide the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from stepscope.viewer.memory.queries.run import finest_level, rows_of_level
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

POINTS = 1200
_MOST_ROWS = 300_000
_DEVICES = "SELECT device FROM live_peaks WHERE log = ? ORDER BY live_bytes DESC, device"
_STEPS = """
    SELECT step, start_ns, count(*) OVER () AS all_steps FROM steps WHERE log = $log
    QUALIFY ($first IS NULL OR step >= $first) AND ($last IS NULL OR step <= $last) ORDER BY start_ns
"""
_NEXT = """
    SELECT coalesce((SELECT min(start_ns) FROM steps WHERE log = $log AND start_ns > $start),
                    (SELECT max(last_ns) + 1 FROM live_peaks WHERE log = $log), $start)
"""
_BEFORE = """
    SELECT arg_max(high, ns), arg_max(made, ns) FROM (
        SELECT ns, high_bytes AS high, made_bytes AS made FROM live_levels
        WHERE log = $log AND device = $device AND ns < $start AND level = greatest($level, 1)
        UNION ALL SELECT ns, live_bytes, made_bytes FROM live_bytes
        WHERE $level = 0 AND log = $log AND device = $device AND ns < $start
    )
"""
_POINTS = """
    WITH ends AS (
        SELECT unnest($starts) AS start_ns, unnest($ends) AS end_ns, unnest($places) AS place
    ), found AS ({rows}), placed AS (
        SELECT f.*, e.place + least((f.ns - e.start_ns) / greatest(e.end_ns - e.start_ns, 1), 0.999999) AS spot
        FROM found f ASOF JOIN ends e ON f.ns >= e.start_ns
    )
    SELECT CAST(floor(spot * $points / $steps) AS BIGINT) AS point, min(low) AS low,
           max(high) AS high, max(made) AS made, arg_max(high, ns) AS last, arg_max(made, ns) AS last_made
    FROM placed GROUP BY point ORDER BY point
"""


class _Step(NamedTuple):
    step: int
    start_ns: int
    all_steps: int


class _Point(NamedTuple):
    """The live bytes from one point of the curve to the next, and at the end of that interval."""

    point: int
    low: int
    high: int
    made: int
    last: int
    last_made: int


@dataclass(frozen=True)
class RunCurve:
    """Columns of points that divide the steps evenly; each has the minimum and maximum until the next point."""

    log: int
    device: str
    devices: list[str]
    steps: list[int]
    start_ns: list[int]
    """Start of each step on the run's monotonic clock."""
    end_ns: int
    all_steps: int
    """Number of steps in the log; `steps` may be a part of them."""
    low_bytes: list[int]
    high_bytes: list[int]
    made_bytes: list[int]
    """Maximum of the live bytes that compiled calls allocated."""


def run_curve(
    trace: Trace,
    log: int,
    first_step: int | None = None,
    last_step: int | None = None,
    device: str | None = None,
    points: int = POINTS,
) -> RunCurve | None:
    """Return the curve over the steps; None if the log has no lifetimes or no such steps."""
    devices = [name for (name,) in sql.rows(trace, _DEVICES, [log])]
    device = next(iter(devices), None) if device is None else device
    found = sql.records(_Step, trace, _STEPS, {"log": log, "first": first_step, "last": last_step})
    if device is None or device not in devices or not found:
        return None
    starts = [row.start_ns for row in found]
    end = int(sql.rows(trace, _NEXT, {"log": log, "start": starts[-1]})[0][0])
    count = len(starts) * (points // len(starts)) if len(starts) <= points else points
    window = {"log": log, "device": device, "start": starts[0], "stop": max(end, starts[-1] + 1)}
    low, high, made = _columns(trace, window, starts, count)
    steps = [row.step for row in found]
    return RunCurve(log, device, devices, steps, starts, end, found[0].all_steps, low, high, made)


def _columns(trace: Trace, window: dict[str, Any], starts: list[int], count: int) -> tuple[list[int], ...]:
    level = finest_level(trace, window, _MOST_ROWS)
    rows, of_level = rows_of_level(level)
    device = {name: window[name] for name in ("log", "device")}
    values = {
        **device, **of_level, "since": window["start"], "stop": window["stop"] - 1, "starts": starts,
        "ends": [*starts[1:], window["stop"]], "places": list(range(len(starts))), "points": count,
        "steps": len(starts),
    }  # fmt: skip
    live, mine = sql.rows(trace, _BEFORE, {**device, "start": window["start"], "level": level})[0]
    live, mine = live or 0, mine or 0
    points = sql.records(_Point, trace, _POINTS.format(rows=rows), values)
    known = {point.point: point for point in points}
    low, high, made = [], [], []
    for number in range(count):
        point = known.get(number, _Point(number, live, live, mine, live, mine))
        low.append(min(point.low, live))
        high.append(max(point.high, live))
        made.append(max(point.made, mine))
        live, mine = point.last, point.last_made
    return low, high, made
