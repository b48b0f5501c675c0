"""The index for those who ask it themselves: its tables, and statements that read and do nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.queries import sql
from stepscope.viewer.queries.export import STORAGES, storages_columns
from stepscope.viewer.store.open import Trace

MOST_ROWS = 1_000
SECONDS = 10.0
_READS = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}


@dataclass(frozen=True)
class TableRow:
    name: str
    rows: int | None
    """None: it is made when it is asked for."""
    columns: list[tuple[str, str]]
    """(name, type) in order."""


@dataclass(frozen=True)
class Answer:
    """What a statement gave."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    """At most as many as were asked for; numbers, booleans and None as they are, everything else as text."""
    more: bool
    """There are more rows than these."""


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


def ask(trace: Trace, statement: str, most: int = MOST_ROWS, seconds: float = SECONDS) -> Answer:
    """Rows of one statement that reads the index. It can open no file and change nothing.

    Raises StepscopeError, in one sentence, for any other statement, for one that is wrong, and for one that takes
    longer than `seconds`.
    """
    cursor = trace.cursor()
    try:
        parsed = cursor.extract_statements(statement)
        if len(parsed) != 1 or parsed[0].type not in _READS:
            raise StepscopeError("Only one statement that reads is answered: SELECT, WITH, FROM, DESCRIBE, EXPLAIN.")
        with _limited(cursor, seconds):
            cursor.execute(parsed[0])
            rows = cursor.fetchmany(most + 1)
            described = cursor.description or []
    except duckdb.InterruptException:
        raise StepscopeError(f"This took longer than {seconds:g} s and was ended: ask for less.") from None
    except (duckdb.Error, UnicodeError, TypeError) as error:
        raise StepscopeError(f"The statement failed: {_sentence(error)}") from None
    shown = [[_value(value) for value in row] for row in rows[:most]]
    return Answer([str(c[0]) for c in described], [str(c[1]) for c in described], shown, len(rows) > most)


@contextmanager
def _limited(cursor: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _value(value: Any) -> Any:
    """As JSON can say it: whole numbers beyond 2**53 would be others in a browser."""
    if isinstance(value, Decimal):
        value = float(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= 1 << 53 else str(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    return str(value)


def _sentence(error: Exception) -> str:
    # What a file system of Python raises comes with its traceback; the error itself is the last line.
    lines = str(error).strip().split("\n")
    text = lines[-1 if lines[0].endswith("Traceback (most recent call last):") else 0]
    return text.rpartition(" Error: ")[2][:300]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
