"""Queries live bytes over the run: the curve in a time window, and its peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stepscope.viewer.ingest.recorder.live_levels import PER_LEVEL
from stepscope.viewer.memory.rows import LiveCurve, RunPeak
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ROWS_PER_PIXEL = 2 * PER_LEVEL
_EXTENTS = """
    SELECT device, first_ns, last_ns, live_bytes FROM live_peaks WHERE log = ? ORDER BY live_bytes DESC, device
"""
_LEVELS = """
    SELECT level, count(*) FROM live_levels
    WHERE log = $log AND device = $device AND ns BETWEEN $start AND $stop GROUP BY level ORDER BY level
"""
_FROM_BELOW = """
    SELECT ns, live_bytes AS low, live_bytes AS high, made_bytes AS made, saved_bytes AS saved,
           kept_bytes AS kept FROM live_bytes
    WHERE log = $log AND device = $device AND ns BETWEEN $since AND $stop
"""
_FROM_LEVEL = """
    SELECT ns, low_bytes AS low, high_bytes AS high, made_bytes AS made, saved_bytes AS saved,
           kept_bytes AS kept FROM live_levels
    WHERE log = $log AND device = $device AND level = $level AND ns BETWEEN $since AND $stop
"""
_BEFORE = """
    SELECT coalesce(max(ns), $first) FROM live_levels
    WHERE log = $log AND device = $device AND level = greatest($level, 1) AND ns <= $start
"""
_POINTS = """
    WITH found AS ({rows}), known AS (
        SELECT greatest(ns, $start) - $start AS at_ns, low, high, made, saved, kept,
               ns < $start AS is_before, CASE WHEN ns < $start THEN ns END AS before_ns
        FROM found
    ), kept AS (
        SELECT * FROM known WHERE NOT is_before OR before_ns = (SELECT max(before_ns) FROM known)
    )
    SELECT min(kept.at_ns) AS at_ns, min(low) AS low, max(high) AS high, arg_max(made, high) AS made,
           arg_max(saved, high) AS saved, arg_max(kept.kept, high) AS kept, count(*) AS events FROM kept
    GROUP BY is_before, kept.at_ns // $pixel ORDER BY min(kept.at_ns), is_before DESC
"""
_PEAKS = """
    SELECT p.log, p.device, p.live_bytes, p.made_bytes, p.ns, c.step, c.call, c.graph,
           (SELECT count(*) - 1 FROM launches n WHERE n.call = c.call AND n.start_ns <= p.ns) AS position
    FROM live_peaks p LEFT JOIN calls c ON c.call = (
        SELECT arg_max(i.call, (i.depth, i.start_ns)) FROM calls i
        WHERE i.log = p.log AND i.start_ns <= p.ns AND i.start_ns + i.duration_ns >= p.ns
    ) ORDER BY p.live_bytes DESC, p.log, p.device
"""


class _Point(NamedTuple):
    """A point of the curve: range of live bytes over its events, and parts of them at the highest moment."""

    at_ns: int
    low: int
    high: int
    made: int
    saved: int
    kept: int
    events: int


def live_curve(
    trace: Trace,
    log: int,
    start_ns: int | None = None,
    end_ns: int | None = None,
    width: int = 1600,
    device: str | None = None,
) -> LiveCurve | None:
    """Return the curve in a window (monotonic ns), about one point per pixel; None if the device has no lifetimes.

    `device` defaults to the device with the highest peak."""
    if not sql.has_rows(trace, "live_peaks"):
        return None
    extents = {name: rest for name, *rest in sql.rows(trace, _EXTENTS, [log])}
    device = next(iter(extents), None) if device is None else device
    if device is None or device not in extents:
        return None
    first, last, _ = extents[device]
    start = first if start_ns is None else min(max(start_ns, first), last)
    stop = max(last if end_ns is None else min(end_ns, last), start)
    window = {"log": log, "device": device, "first": first, "start": start, "stop": stop}
    points = _points(trace, window, max(width, 1))
    return LiveCurve(
        log=log,
        device=device,
        devices=list(extents),
        start_ns=first,
        end_ns=last,
        window_start_ns=start,
        window_end_ns=stop,
        at_ns=[point.at_ns for point in points],
        low_bytes=[point.low for point in points],
        high_bytes=[point.high for point in points],
        made_bytes=[point.made for point in points],
        saved_bytes=[point.saved for point in points],
        kept_bytes=[point.kept for point in points],
        merged=any(point.events > 1 for point in points),
    )


def _points(trace: Trace, window: dict[str, Any], width: int) -> list[_Point]:
    """Return the points of the finest level of detail that fits the window, merged per pixel."""
    inside = {name: value for name, value in window.items() if name != "first"}
    level = finest_level(trace, inside, width * _ROWS_PER_PIXEL)
    before = {name: window[name] for name in ("log", "device", "start", "first")}
    since = sql.rows(trace, _BEFORE, {"level": level, **before})
    pixel = max(1, (window["stop"] - window["start"]) // width)
    rows, of_level = rows_of_level(level)
    return sql.records(
        _Point, trace, _POINTS.format(rows=rows), {**inside, **of_level, "since": since[0][0], "pixel": pixel}
    )


def rows_of_level(level: int) -> tuple[str, dict[str, int]]:
    """Return the statement for the rows of a level from `$since` to `$stop`, and its parameter for the level."""
    return (_FROM_LEVEL, {"level": level}) if level else (_FROM_BELOW, {})


def finest_level(trace: Trace, window: Mapping[str, Any], most: int) -> int:
    """Return the finest level of detail that has at most about `most` rows in a window; 0 stands for every moment."""
    known: dict[int, int] = dict(sql.rows(trace, _LEVELS, window))
    if known.get(1, 0) * PER_LEVEL <= most:
        return 0
    return next((level for level in sorted(known) if known[level] <= most), max(known))


def run_peaks(trace: Trace) -> list[RunPeak]:
    """Return the peak of each log and device, highest first."""
    return trace.once(_run_peaks)


def _run_peaks(trace: Trace) -> list[RunPeak]:
    return sql.records(RunPeak, trace, _PEAKS)
