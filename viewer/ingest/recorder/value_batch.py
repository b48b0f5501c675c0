"""Checks one record of values and converts it to numpy columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.tracer.schema.statistics import COUNTS, NONFINITE, RECORDED_NUMBERS, Elements, Sparse, Values
from stepscope.viewer.ingest.columns import Ints
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.decode import BadPayload

Floats = npt.NDArray[np.float64]
UNKNOWN = -1
UNCOUNTED = np.iinfo(np.int64).min
"""The count of what the writer of a log did not count."""
_LONGEST_EXACT = 48


@dataclass(frozen=True)
class ValueColumns:
    """A record of values. Unknown values are NaN among floats, -1 in `first_bad`, and `UNCOUNTED` in counts."""

    place: RecordPlace
    call: Ints
    layout: Ints
    floats: dict[str, Floats]
    ints: dict[str, Ints]
    exact: tuple[Ints, list[str | None], list[str | None]]
    at_least: Ints | None
    """Rows whose counts of NaN and infinity are only minimums; None if all counts are complete."""
    elements: tuple[Ints, list[list[Any]]]
    """Rows whose elements were kept, and these elements."""

    @property
    def rows(self) -> int:
        return len(self.floats["min"])


def batch_of(values: Values, place: RecordPlace, damage: Damage) -> ValueColumns:
    """Return the columns of a record, impossible values counted. Raises BadPayload if they are inconsistent."""
    count = len(values.min)
    floats = {name: _floats(getattr(values, name), count, f"Values.{name}") for name in RECORDED_NUMBERS}
    if len(values.call) != len(values.layout) or any(len(column) != count for column in floats.values()):
        raise BadPayload("Values has columns of unequal length")
    counted = COUNTS if values.at_least is None else NONFINITE
    ints = {
        name: _dense(getattr(values, name) if name in counted else None, count, 0, f"Values.{name}") for name in COUNTS
    }
    ints["first_bad"] = _dense(values.first_bad, count, UNKNOWN, "Values.first_bad")
    if (floats["std"] < 0).any():
        damage.add("absurd_value", "Values.std is negative", place.line, place.byte)
        floats["std"] = np.where(floats["std"] < 0, np.nan, floats["std"])
    call, layout = (np.array(column, dtype=np.int64) for column in (values.call, values.layout))
    exact = values.exact
    if not len(exact.row) == len(exact.min) == len(exact.max):
        raise BadPayload("Values.exact has columns of unequal length")
    at = _positions(exact.row, count, "Values.exact")
    least = None if values.at_least is None else _positions(values.at_least, count, "Values.at_least")
    kept = (
        (np.empty(0, dtype=np.int64), list[list[Any]]()) if values.elements is None else _kept(values.elements, count)
    )
    return ValueColumns(place, call, layout, floats, ints, (at, _texts(exact.min), _texts(exact.max)), least, kept)


def _kept(elements: Elements, count: int) -> tuple[Ints, list[list[Any]]]:
    if len(elements.row) != len(elements.value):
        raise BadPayload("Values.elements has columns of unequal length")
    return _positions(elements.row, count, "Values.elements"), elements.value


def _floats(values: list[float | None] | None, count: int, path: str) -> Floats:
    """`values`, which an older log may lack, with NaN for None."""
    try:
        if values is None:
            return np.full(count, np.nan)
        return np.array(values, dtype=np.float64)
    except OverflowError:
        raise BadPayload(f"{path} holds a number that is too large") from None


def _dense(column: Sparse | None, count: int, otherwise: int, path: str) -> Ints:
    """`column` with `otherwise` in the rows that it does not name; `UNCOUNTED` if there is no column."""
    if column is None:
        return np.full(count, UNCOUNTED)
    if len(column.row) != len(column.value):
        raise BadPayload(f"{path} has columns of unequal length")
    dense = np.full(count, otherwise, dtype=np.int64)
    dense[_positions(column.row, count, path)] = column.value
    return dense


def _positions(rows: list[int], count: int, path: str) -> Ints:
    at = np.array(rows, dtype=np.int64)
    if len(at) and (at.min() < 0 or at.max() >= count):
        raise BadPayload(f"{path} names a row that does not exist")
    return at


def _texts(values: list[Any]) -> list[str | None]:
    """Return exact numbers as text, None for what is not a number."""
    return [
        text if type(value) in (int, float, str) and len(text := str(value)) <= _LONGEST_EXACT and _is_number(text)
        else None
        for value in values
    ]  # fmt: skip


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except (ValueError, OverflowError):
        return False
