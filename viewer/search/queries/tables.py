"""Lists the tables of the index for users who query it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.exports.queries.tables import STORAGES, storages_columns
from stepscope.viewer.store import sql
from stepscope.viewer.store.meanings import meaning_of
from stepscope.viewer.store.trace import Trace


@dataclass(frozen=True)
class TableRow:
    name: str
    rows: int | None
    """None if the table is computed on demand."""
    columns: list[tuple[str, str]]
    """(name, type) in order."""
    meaning: str | None = None
    meanings: list[str | None] = field(default_factory=list)
    """Meaning of each column."""


@dataclass(frozen=True)
class SqlAnswer:
    """The result of a statement."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    """Rows up to the maximum; numbers, booleans and None are unchanged, everything else is text."""
    more: bool
    """Whether there are more rows than these."""
    cut: int
    """Number of cells that were cut short; each says how long it was."""


def list_tables(trace: Trace) -> list[TableRow]:
    """Return the tables of the index, and those that `stepscope export` adds, by name."""
    columns: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in sql.rows(
        trace,
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'trace'"
        " AND NOT internal ORDER BY table_name, column_index",
    ):
        columns.setdefault(table, []).append((column, kind))
    counted = " UNION ALL ".join(f'SELECT {_text(name)}, count(*) FROM "{name}"' for name in columns)
    counts: dict[str, int] = dict(sql.rows(trace, counted))
    found = [_row(name, counts[name], kinds) for name, kinds in columns.items()]
    return sorted([*found, _row(STORAGES, None, storages_columns(trace))], key=lambda row: row.name)


def _row(name: str, rows: int | None, columns: list[tuple[str, str]]) -> TableRow:
    return TableRow(name, rows, columns, meaning_of(name), [meaning_of(name, column) for column, _ in columns])


def count_rows(trace: Trace, table: str) -> int:
    """Return the number of rows of a table of `list_tables`."""
    return int(sql.number(trace, f'SELECT count(*) FROM "{table}"'))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
