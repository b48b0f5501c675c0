"""Finds the rows that the index rejects, so that only they are lost and each is counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import duckdb

from stepscope.viewer.ingest.damage import excerpt
from stepscope.viewer.ingest.rows import IndexRows, TableRows

REFUSALS = (duckdb.Error, OverflowError, TypeError, ValueError, RuntimeError)
"""Exceptions that a value raises if its column rejects it."""
_REASON = "not_understood"
_MOST_PLACES = 100
Row = Mapping[str, Any]


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


def valid_rows(rows: IndexRows, schema: str) -> IndexRows:
    """Return the rows that an index accepts, with problems that describe the others."""
    connection = duckdb.connect(":memory:")
    try:
        connection.execute(schema)
        kept = IndexRows()
        lost: list[tuple[str, Row, str]] = []
        for table, found in _tables(rows).items():
            bad: list[tuple[Row, str]] = []
            for row in _kept(found, _inserter(connection, table), bad):
                kept.tables[table].add(row)
            lost += [(table, row, why) for row, why in bad]
        _tell(kept, lost)
    finally:
        connection.close()
    return kept


def _tables(rows: IndexRows) -> dict[str, list[Row]]:
    found: defaultdict[str, TableRows] = defaultdict(TableRows)
    for table, of_table in rows.tables.items():
        found[table].extend(of_table.columns)
    for table, parts in rows.columns.items():
        for part in parts:
            found[table].extend({name: column.tolist() for name, column in part.items()})
    return {table: list(of_table) for table, of_table in found.items()}


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
