"""Collects rows for the index by column name: Python values for most tables, numpy columns for the large ones, which
are made in parts if they may be very large."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Column, Columns

AT_ONCE_ROWS = 122_880
"""Number of rows of a large table that are made and inserted at once: a row group of DuckDB, which then need not be
written again when the next ones come."""


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


class LaterRows(NamedTuple):
    """Rows that are made when they are inserted, because all of them would take much memory."""

    length: int
    make: Callable[[], Columns]


class LargeRows(NamedTuple):
    """Rows of a table that are inserted at once; `make` returns them each time that it is called."""

    table: str
    length: int
    make: Callable[[], Columns]


class IndexRows:
    """The rows of all logs of a trace by table; ids count up over all logs."""

    def __init__(self, first_id: int = 0) -> None:
        """Ids begin at `first_id`, so that rows read separately have ids of their own."""
        self.tables: defaultdict[str, TableRows] = defaultdict(TableRows)
        self.columns: defaultdict[str, list[dict[str, Column]]] = defaultdict(list)
        self.later: defaultdict[str, list[LaterRows]] = defaultdict(list)
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

    def extend_rows(self, table: str, names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows given as tuples, whose values are in the order of `names`."""
        known, columns = self.tables[table], list(zip(*rows, strict=True))
        if columns:
            known.extend(dict(zip(names, columns, strict=True)))

    def add_columns(self, table: str, columns: dict[str, Column]) -> None:
        self.columns[table].append(columns)

    def add_later(self, table: str, count: int, make: Callable[[], Columns]) -> None:
        """Add `count` rows that `make` returns each time that it is called."""
        if count:
            self.later[table].append(LaterRows(count, make))

    def large_parts(self) -> Iterator[tuple[str, LaterRows]]:
        """Yield the tables that are numpy columns, as they were added."""
        for table, parts in self.columns.items():
            for columns in parts:
                yield table, LaterRows(len(next(iter(columns.values()))), partial(_same, columns))
        for table, later in self.later.items():
            for part in later:
                yield table, part

    def large_tables(self) -> Iterator[LargeRows]:
        """Yield the tables that are numpy columns; small parts of a table are joined."""
        for table, parts in groupby(self.large_parts(), itemgetter(0)):
            some, count = list[LaterRows](), 0
            for _, part in parts:
                some.append(part)
                count += part.length
                if count >= AT_ONCE_ROWS:
                    yield LargeRows(table, count, partial(_made, some))
                    some, count = [], 0
            if some:
                yield LargeRows(table, count, partial(_made, some))


def _made(parts: Sequence[LaterRows]) -> Columns:
    from stepscope.viewer.ingest.columns import joined

    return joined([part.make() for part in parts])


def _same(columns: Columns) -> Columns:
    return columns


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
