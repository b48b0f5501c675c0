"""Collects rows for the index by column name: Python values for most tables, numpy columns for the large ones."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Column


class TableRows:
    """The rows of one table. A column that a row does not name is NULL in that row."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}
        self._names: tuple[str, ...] = ()
        self._appends: list[Callable[[Any], None]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def add(self, values: Mapping[str, Any]) -> None:
        if tuple(values) != self._names:
            self._name(values)
            values = {name: values.get(name) for name in self._names}
        for append, value in zip(self._appends, values.values(), strict=True):
            append(value)
        self._count += 1

    def extend(self, columns: Mapping[str, Collection[Any]]) -> None:
        """Add rows given as columns of equal length."""
        count = len(next(iter(columns.values()), ()))
        self._name(columns)
        for name, known in self.columns.items():
            known.extend(columns.get(name) or [None] * count)
        self._count += count

    def _name(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.columns:
                self.columns[name] = [None] * self._count
        self._names, self._appends = tuple(self.columns), [column.append for column in self.columns.values()]


class IndexRows:
    """The rows of all logs of a trace by table; ids count up over all logs."""

    def __init__(self, first_id: int = 0) -> None:
        """Ids begin at `first_id`, so that rows read separately have ids of their own."""
        self.tables: defaultdict[str, TableRows] = defaultdict(TableRows)
        self.columns: defaultdict[str, list[dict[str, Column]]] = defaultdict(list)
        self._ids: defaultdict[str, int] = defaultdict(lambda: first_id)

    def new_id(self, table: str, count: int = 1) -> int:
        """Reserve `count` new ids and return the first."""
        first = self._ids[table]
        self._ids[table] = first + count
        return first

    def add(self, table: str, /, **values: Any) -> None:
        """Add a row whose values are named like the columns of `table`."""
        self.tables[table].add(values)

    def extend(self, table: str, columns: Mapping[str, Collection[Any]]) -> None:
        """Add rows given as columns of Python values."""
        self.tables[table].extend(columns)

    def add_columns(self, table: str, columns: dict[str, Column]) -> None:
        self.columns[table].append(columns)


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the garbage collector: it takes a twentieth of the time and finds no garbage among rows."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
