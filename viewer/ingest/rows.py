"""Rows on their way into the index: tuples for most tables, numpy columns for those of the run time."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Column


class Rows:
    """Rows of all logs of a trace, by table, in the order of the table's columns; ids count up over all logs."""

    def __init__(self, first_id: int = 0) -> None:
        """Ids begin at `first_id`: rows that are read apart from others take a range of their own."""
        self.tables: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.columns: defaultdict[str, list[dict[str, Column]]] = defaultdict(list)
        self._ids: defaultdict[str, int] = defaultdict(lambda: first_id)

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


@contextmanager
def without_collection() -> Iterator[None]:
    """Rows are no garbage: looking through all of them again and again takes a twentieth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
