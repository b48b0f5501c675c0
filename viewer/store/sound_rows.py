"""Finds the rows that no index can hold. Each costs itself only, and is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import duckdb

from stepscope.viewer.ingest.damage import excerpt
from stepscope.viewer.ingest.rows import Rows

REFUSALS = (duckdb.Error, OverflowError, TypeError, ValueError, RuntimeError)
"""What is raised for a value that a column cannot hold."""
_REASON = "not_understood"
_MOST_PLACES = 100
Row = tuple[Any, ...]


def append(connection: duckdb.DuckDBPyConnection, table: str, rows: list[Row]) -> None:
    """The fastest way in for a few thousand rows. Raises one of `REFUSALS` for a value that the table cannot hold."""
    if not hasattr(connection, "appender"):  # DuckDB before 2.0
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        return
    appender = connection.appender(table)
    try:
        appender.append_rows(rows)
        appender.flush()
    except REFUSALS:
        with suppress(*REFUSALS):
            appender.clear()  # else it tries once more when it goes
        raise


def sound_rows(rows: Rows, schema: str) -> Rows:
    """The rows that an index can hold, with problems that tell of the others."""
    connection = duckdb.connect(":memory:")
    try:
        connection.execute(schema)
        kept = Rows()
        lost: list[tuple[str, Row, str]] = []
        for table, found in _tables(rows).items():
            bad: list[tuple[Row, str]] = []
            kept.tables[table] = _kept(found, _inserter(connection, table), bad)
            lost += [(table, row, why) for row, why in bad]
        _tell(kept, connection, lost)
    finally:
        connection.close()
    return kept


def _tables(rows: Rows) -> dict[str, list[Row]]:
    found = {table: list(of_table) for table, of_table in rows.tables.items()}
    for table, parts in rows.columns.items():
        for part in parts:
            found.setdefault(table, []).extend(zip(*(column.tolist() for column in part.values()), strict=True))
    return found


def _inserter(connection: duckdb.DuckDBPyConnection, table: str) -> Callable[[Sequence[Row]], None]:
    def insert(rows: Sequence[Row]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        connection.execute("BEGIN")
        try:
            if len(rows) == 1:
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", rows[0])
            else:
                append(connection, table, list(rows))
        finally:
            connection.execute("ROLLBACK")

    return insert


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


def _tell(rows: Rows, connection: duckdb.DuckDBPyConnection, lost: Sequence[tuple[str, Row, str]]) -> None:
    counts: dict[int, int] = {}
    for number, (table, row, why) in enumerate(lost):
        names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
        log = row[names.index("log")] if "log" in names and len(row) == len(names) else None
        known = log if type(log) is int and 0 <= log < len(rows.tables["logs"]) else 0
        counts[known] = counts.get(known, 0) + 1
        if number < _MOST_PLACES:
            rows.add("problems", known, None, None, _REASON, excerpt(f"a row of the table {table}: {why}"))
    for log, count in counts.items():
        rows.add("problem_counts", log, _REASON, count)
