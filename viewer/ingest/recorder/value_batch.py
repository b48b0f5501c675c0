"""Checks one record of values and converts it to numpy columns."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.tracer.schema.statistics import COUNTS, NONFINITE, RECORDED_NUMBERS, Elements, Sparse, Values
from stepscope.viewer.ingest.columns import Ints
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.decode import BadPayload
from stepscope.viewer.ingest.spill import Kept, Spill

Floats = npt.NDArray[np.float64]
UNKNOWN = -1
FIRST_BAD = "first_bad"
UNCOUNTED = np.iinfo(np.int64).min
"""The count of what the writer of a log did not count."""
_LONGEST_EXACT = 48


@dataclass(frozen=True)
class ValueColumns:
    """A record of values. Its numbers are kept in a spill, because there are many of them."""

    place: RecordPlace
    rows: int
    call: Ints
    layout: Ints
    floats: Mapping[str, Kept]
    """Unknown values are NaN."""
    sparse: Mapping[str, tuple[Kept, Kept] | None]
    """Rows and their values of each count and of `first_bad`; None for a count that the writer did not count."""
    exact: tuple[Ints, list[str | None], list[str | None]]
    at_least: Ints
    """Rows whose counts of NaN and infinity are only minimums."""
    digest: Kept | None
    """The digests as int64 with the same bits, 0 for unknown ones; None if there are none."""
    elements: tuple[Ints, list[list[Any]]]
    """Rows whose elements were kept, and these elements."""


def batch_of(values: Values, place: RecordPlace, damage: Damage, spill: Spill) -> ValueColumns:
    """Return the columns of a record, impossible values counted. Raises BadPayload if they are inconsistent."""
    count = len(values.min)
    floats = {name: _floats(getattr(values, name), count, f"Values.{name}") for name in RECORDED_NUMBERS}
    if len(values.call) != len(values.layout) or any(len(column) != count for column in floats.values()):
        raise BadPayload("Values has columns of unequal length")
    counted = COUNTS if values.at_least is None else NONFINITE
    sparse = {
        name: _sparse(getattr(values, name) if name in counted else None, count, f"Values.{name}") for name in COUNTS
    }
    sparse[FIRST_BAD] = _sparse(values.first_bad, count, "Values.first_bad")
    if (floats["std"] < 0).any():
        damage.add("absurd_value", "Values.std is negative", place.line, place.byte)
        floats["std"] = np.where(floats["std"] < 0, np.nan, floats["std"])
    call, layout = (np.array(column, dtype=np.int64) for column in (values.call, values.layout))
    exact = values.exact
    if not len(exact.row) == len(exact.min) == len(exact.max):
        raise BadPayload("Values.exact has columns of unequal length")
    at = _positions(exact.row, count, "Values.exact")
    least = _positions(values.at_least or [], count, "Values.at_least")
    kept = (
        (np.empty(0, dtype=np.int64), list[list[Any]]()) if values.elements is None else _kept(values.elements, count)
    )
    return ValueColumns(
        place, count, call, layout,
        {name: spill.keep(column) for name, column in floats.items()},
        {name: column and (spill.keep(column[0]), spill.keep(column[1])) for name, column in sparse.items()},
        (at, _texts(exact.min), _texts(exact.max)), least,
        None if values.digest is None else spill.keep(_digests(values.digest, count)), kept,
    )  # fmt: skip


def _digests(text: str, count: int) -> Ints:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise BadPayload("Values.digest is no base64") from None
    if len(data) != 8 * count:
        raise BadPayload("Values has columns of unequal length")
    return np.frombuffer(data, "<i8").astype(np.int64)


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


def _sparse(column: Sparse | None, count: int, path: str) -> tuple[Ints, Ints] | None:
    if column is None:
        return None
    if len(column.row) != len(column.value):
        raise BadPayload(f"{path} has columns of unequal length")
    return _positions(column.row, count, path), np.array(column.value, dtype=np.int64)


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
