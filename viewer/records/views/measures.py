"""Formats the numbers in records with their units, which PyTorch puts into the names of fields."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from stepscope.viewer.records.rows import Cell
from stepscope.viewer.records.views.shape import shown
from stepscope.viewer.text.formats import format_bytes, format_count, format_ns, format_value

NOT_SAID = "not in this record"
_MOST = 10**15
"""Limit above which a number is not formatted as a duration."""
_SCALES = (("_ns", 1), ("_us", 1_000), ("_ms", 1_000_000), ("_s", 1_000_000_000))
_LONG = 300


def value_of(name: str, value: Any) -> Cell:
    """Return the value of a field, with times and sizes in readable units and the exact number on hover."""
    if value is None:
        return Cell(None, NOT_SAID)
    if value == "":
        return Cell(None, "empty")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, int | float):
        return _number(name, value)
    text = shown(value)
    return Cell(text) if isinstance(value, str) else Cell(text, mono=True)


def _number(name: str, value: int | float) -> Cell:
    if abs(value) < _MOST * 10_000:
        if name in ("start_time", "start_time_us", "end_time_us"):
            return _moment(value / 1e6 if name.endswith("_us") else value, value)
        if name == "cache_event_time":
            return _moment(value / 1e9, value)
        scale = next((scale for ending, scale in _SCALES if name.endswith(ending)), None)
        if scale is not None and abs(value) < _MOST:
            return Cell(format_ns(round(value * scale)), f"{format_value(value)} {_unit(name)}")
        if "bytes" in name.lower():
            return Cell(format_bytes(round(value)), f"{format_count(round(value))} bytes")
    if isinstance(value, int):
        return Cell(format_count(value))
    return Cell(format_value(value), repr(value))


def _unit(name: str) -> str:
    return name.rpartition("_")[2]


def _moment(seconds: float, exact: int | float) -> Cell:
    if not 0 < seconds < 4e9:
        return Cell(format_value(exact), repr(exact))
    return Cell(datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"), repr(exact))


def is_time(name: str) -> bool:
    """Return whether the field is a duration or a point in time."""
    return name.startswith(("start_time", "end_time")) or name.endswith(tuple(ending for ending, _ in _SCALES))


def is_short(value: Any) -> bool:
    """Return whether the value is short enough for a fact."""
    return (
        value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and len(value) <= _LONG and "\n" not in value)
    )
