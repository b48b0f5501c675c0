"""Finds the rows that the index rejects, so that only they are lost and each is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import duckdb

from stepscope.viewer.ingest.damage import excerpt
from stepscope.viewer.ingest.rows import IndexRows, LaterRows, TableRows

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Columns

REFUSALS = (duckdb.Error, OverflowError, TypeError, ValueError, RuntimeError)
"""Exceptions that a value raises if its column rejects it."""
_REASON = "not_understood"
_MOST_PLACES = 100
Row = Mapping[str, Any]
InsertColumns = Callable[[duckdb.DuckDBPyConnection, str, "Columns"], int]


def append(connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Add up to a few thousand rows in the fastest way. Raises one of `REFUSALS` if the table rejects a value."""
    rows = list(zip(*columns.values(), strict=True))
    if not hasattr(connection, "appender"):  # DuckDB before 2.0
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {table} ({_names(columns)}) VALUES ({marks})", rows)
        return
    appender = connection.appender(table, columns=list(columns))
    try:
        appender.append_rows(rows)
        appender.flush()
    except REFUSALS:
        with suppress(*REFUSALS):
            appender.clear()  # else it tries again when it is deleted
        raise


def valid_rows(rows: IndexRows, schema: str, insert_columns: InsertColumns) -> IndexRows:
    """Return the rows that an index accepts, with problems that describe the others. `insert_columns` inserts a part
    of a large table."""
    connection = duckdb.connect(":memory:")
    try:
        connection.execute(schema)
        kept = IndexRows()
        lost: list[tuple[str, Row, str]] = []

        def keep(table: str, found: TableRows) -> None:
            bad: list[tuple[Row, str]] = []
            for row in _kept(list(found), _inserter(connection, table), bad):
                kept.tables[table].add(row)
            lost.extend((table, row, why) for row, why in bad)

        for table, found in rows.tables.items():
            keep(table, found)
        for table, part in rows.large_parts():
            if _is_accepted(connection, table, part, insert_columns):
                kept.add_later(table, *part)
            else:
                keep(table, _row_by_row(part))
        _tell(kept, lost)
    finally:
        connection.close()
    return kept


def _is_accepted(
    connection: duckdb.DuckDBPyConnection, table: str, part: LaterRows, insert_columns: InsertColumns
) -> bool:
    connection.execute("BEGIN")
    try:
        insert_columns(connection, table, part.make())
    except REFUSALS:
        return False
    finally:
        connection.execute("ROLLBACK")
    return True


def _row_by_row(part: LaterRows) -> TableRows:
    from stepscope.viewer.ingest.columns import plain

    found = TableRows()
    found.extend({name: column.tolist() for name, column in plain(part.make()).items()})
    return found


def _inserter(connection: duckdb.DuckDBPyConnection, table: str) -> Callable[[Sequence[Row]], None]:
    def insert(rows: Sequence[Row]) -> None:
        connection.execute("BEGIN")
        try:
            if len(rows) == 1:
                marks = ", ".join("?" * len(rows[0]))
                statement = f"INSERT INTO {table} ({_names(rows[0])}) VALUES ({marks})"
                connection.execute(statement, list(rows[0].values()))
            else:
                append(connection, table, {name: [row[name] for row in rows] for name in rows[0]})
        finally:
            connection.execute("ROLLBACK")

    return insert


def _names(columns: Mapping[str, Any]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _kept(rows: Sequence[Row], insert: Callable[[Sequence[Row]], None], bad: list[tuple[Row, str]]) -> list[Row]:
    if not rows:
        return []
    try:
        insert(rows)
    except REFUSALS as error:
        if len(rows) == 1:
            bad.append((rows[0], str(error).partition("\n")[0]))
            return []
        half = len(rows) // 2
        return _kept(rows[:half], insert, bad) + _kept(rows[half:], insert, bad)
    return list(rows)


def _tell(rows: IndexRows, lost: Sequence[tuple[str, Row, str]]) -> None:
    counts: dict[int, int] = {}
    for number, (table, row, why) in enumerate(lost):
        log = row.get("log")
        known = log if type(log) is int and 0 <= log < len(rows.tables["logs"]) else 0
        counts[known] = counts.get(known, 0) + 1
        if number < _MOST_PLACES:
            rows.add("problems", log=known, reason=_REASON, text=excerpt(f"a row of the table {table}: {why}"))
    for log, count in counts.items():
        rows.add("problem_counts", log=log, reason=_REASON, count=count)
