"""The index for those who ask it themselves: its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepscope.viewer.exports.queries.tables import STORAGES, storages_columns
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


@dataclass(frozen=True)
class TableRow:
    name: str
    rows: int | None
    """None: it is made when it is asked for."""
    columns: list[tuple[str, str]]
    """(name, type) in order."""


@dataclass(frozen=True)
class SqlAnswer:
    """What a statement gave."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    """At most as many as were asked for; numbers, booleans and None as they are, everything else as text."""
    more: bool
    """There are more rows than these."""
    cut: int
    """So many cells were cut short; each says how long it is."""


def list_tables(trace: Trace) -> list[TableRow]:
    """Tables of the index, and what `stepscope export` has beside them, by name."""
    columns: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in sql.rows(
        trace,
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'trace'"
        " AND NOT internal ORDER BY table_name, column_index",
    ):
        columns.setdefault(table, []).append((column, kind))
    counted = " UNION ALL ".join(f'SELECT {_text(name)}, count(*) FROM "{name}"' for name in columns)
    counts: dict[str, int] = dict(sql.rows(trace, counted))
    found = [TableRow(name, counts[name], kinds) for name, kinds in columns.items()]
    return sorted([*found, TableRow(STORAGES, None, storages_columns(trace))], key=lambda row: row.name)


def count_rows(trace: Trace, table: str) -> int:
    """Rows of one of `list_tables`."""
    return int(sql.number(trace, f'SELECT count(*) FROM "{table}"'))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
