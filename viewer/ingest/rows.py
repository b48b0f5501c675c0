"""Rows on their way into the index: lists of tuples for small tables, numpy columns for those of the run time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
_INT = np.dtype(np.int64)


class Rows:
    """Rows of all logs of a trace, by table; ids count up over all logs."""

    def __init__(self) -> None:
        self.tables: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.columns: defaultdict[str, list[dict[str, Column]]] = defaultdict(list)
        self._ids: defaultdict[str, int] = defaultdict(int)

    def new_id(self, table: str, count: int = 1) -> int:
        """The first of `count` new ids."""
        first = self._ids[table]
        self._ids[table] = first + count
        return first

    def add(self, table: str, *values: Any) -> None:
        self.tables[table].append(values)

    def extend(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self.tables[table].extend(rows)

    def add_columns(self, table: str, columns: dict[str, Column]) -> None:
        self.columns[table].append(columns)

    def drain(self) -> Iterable[tuple[str, dict[str, Column]]]:
        """Every table that has rows, as columns in the order of its definition."""
        for table, rows in self.tables.items():
            if not rows:
                continue
            yield table, {f"c{i}": as_column(values) for i, values in enumerate(zip(*rows, strict=True))}
        for table, parts in self.columns.items():
            yield table, {name: _join([part[name] for part in parts]) for name in parts[0]}


def _join(parts: list[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    joined: Column = np.concatenate([np.ma.getdata(part) for part in parts])
    masks = [np.ma.getmaskarray(part) for part in parts]
    return np.ma.array(joined, mask=np.concatenate(masks))


def as_column(values: Iterable[Any]) -> Column:
    """A column of integers, booleans or strings; None becomes a masked value or stays None among strings."""
    items = list(values)
    sample = next((item for item in items if item is not None), None)
    if not isinstance(sample, int):
        column = np.empty(len(items), dtype=object)
        column[:] = items
        return column
    try:
        return np.array(items, dtype=_INT)
    except TypeError:
        mask = [item is None for item in items]
        return np.ma.array(np.array([item or 0 for item in items], dtype=_INT), mask=mask)
