"""Finds out whether the result of a statement can be drawn: as a timeline or as a curve over steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepscope.viewer.search.queries.tables import SqlAnswer

ViewName = Literal["table", "timeline", "curve"]
_STARTS = ("start_ns", "start_unix_ns", "start", "born_ns", "ns", "unix_ns", "first_ns")
_ENDS = ("end_ns", "end_unix_ns", "end", "died_ns", "last_ns")
_DURATIONS = ("duration_ns", "duration", "device_duration_ns", "self_ns")
_LANES = ("lane", "stream", "thread", "device", "rank", "log")
_LINES = ("rank", "log")
_MOST_LINES = 64
_NAMES = ("name", "kernel", "frame", "function", "compile_id", "buffer", "text")
_ALONG = ("step", "position", "launch", "snode_index", "call", "ns")
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL", "UBIGINT", "UINTEGER")


@dataclass(frozen=True)
class TimelineView:
    """Intervals in ns from the first start; rows without a start or a duration are left out."""

    start: list[int]
    duration: list[int]
    name: list[str]
    lane: list[str]
    row: list[int]
    """Row of the result of each interval."""


@dataclass(frozen=True)
class CurveView:
    """Columns of numbers over another column, in its order; rows without a number in it are left out."""

    along: str
    x: list[Any]
    series: dict[str, list[float | None]]
    row: list[int]
    """Row of the result of each point."""
    lines: list[str] | None
    """The name of the line to which each point belongs, such as ``rank 0``; None if all points are one line."""


@dataclass(frozen=True)
class ResultViews:
    timeline: TimelineView | None
    curve: CurveView | None

    @property
    def names(self) -> list[ViewName]:
        found: list[ViewName] = ["timeline"] if self.timeline else []
        return [*found, "curve", "table"] if self.curve else [*found, "table"]


def views_of(answer: SqlAnswer) -> ResultViews:
    """Return the pictures of a result, None where it lacks the columns for it."""
    return ResultViews(_timeline(answer), _curve(answer))


def _timeline(answer: SqlAnswer) -> TimelineView | None:
    start, duration, end = (_first(answer, names) for names in (_STARTS, _DURATIONS, _ENDS))
    if start is None or (duration is None and end is None):
        return None
    lane, name = _first(answer, _LANES), _name_column(answer)
    rows = []
    for number, row in enumerate(answer.rows):
        at = _whole(row[start])
        length = _whole(row[duration]) if duration is not None else None
        if length is None and end is not None and at is not None:
            to = _whole(row[end])
            length = None if to is None else to - at
        if at is not None and length is not None and length >= 0:
            lane_name = "" if lane is None else f"{answer.columns[lane]} {row[lane]}"
            rows.append((at, length, "" if name is None else str(row[name]), lane_name, number))
    if not rows:
        return None
    first = min(row[0] for row in rows)
    starts, *others = (list(column) for column in zip(*sorted(rows), strict=True))
    return TimelineView([at - first for at in starts], *others)


def _curve(answer: SqlAnswer) -> CurveView | None:
    along = _first(answer, _ALONG)
    numbers = [
        index
        for index, kind in enumerate(answer.types)
        if kind.partition("(")[0] in _NUMBERS and index != along and answer.columns[index] not in (*_LANES, *_ALONG)
    ]
    if along is None:
        return None
    places = [_number(row[along]) or _whole(row[along]) for row in answer.rows]
    order = [row for _, row in sorted((place, row) for row, place in enumerate(places) if place is not None)]
    columns = {answer.columns[index]: [_number(answer.rows[row][index]) for row in order] for index in numbers}
    known = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    if not known or len(order) < 2:
        return None
    along_values = [answer.rows[row][along] for row in order]
    return CurveView(answer.columns[along], along_values, known, order, _lines(answer, order))


def _lines(answer: SqlAnswer, rows: Sequence[int]) -> list[str] | None:
    """Return the line of each of `rows` if a column tells ranks or logs apart."""
    by = _first(answer, _LINES)
    names = [] if by is None else [f"{answer.columns[by]} {answer.rows[row][by]}" for row in rows]
    return names if 1 < len({*names}) <= _MOST_LINES else None


def _first(answer: SqlAnswer, names: Sequence[str]) -> int | None:
    return next((answer.columns.index(name) for name in names if name in answer.columns), None)


def _name_column(answer: SqlAnswer) -> int | None:
    named = _first(answer, _NAMES)
    return named if named is not None else next((i for i, kind in enumerate(answer.types) if kind == "VARCHAR"), None)


def _whole(value: object) -> int | None:
    """Return a whole number; those beyond 2**53 are texts in a result."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(str(value)) if isinstance(value, int | str) else int(value)  # type: ignore[call-overload]
    except (ValueError, OverflowError, TypeError):
        return None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
