"""Inserts the large tables of an index. Where two cores are free, two threads make and compress rows, which are
committed in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from stepscope.viewer.ingest.rows import AT_ONCE_ROWS, LargeRows

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Columns

Insert = Callable[[duckdb.DuckDBPyConnection, str, "Columns"], int]
_ROWS = 2 * AT_ONCE_ROWS
"""Rows of a transaction. DuckDB compresses those of complete row groups while they are inserted, in the thread that
inserts them, and the others when they are committed."""
_THREADS = 2


class _Inserting(NamedTuple):
    connection: duckdb.DuckDBPyConnection
    table: str
    length: int
    done: Future[None]


def insert_large(
    connection: duckdb.DuckDBPyConnection,
    database: str,
    parts: Sequence[LargeRows],
    insert: Insert,
    inserted: Callable[[str, int], None],
) -> None:
    """Insert all parts with `insert`, and call `inserted` with table and number of rows of each transaction.

    `connection` must have no transaction. Raises what `insert` raises; nothing of that transaction is in the index.
    """
    count = _THREADS if sum(part.length for part in parts) > _ROWS and _cores(connection) >= _THREADS else 1
    cursors = [connection.cursor() for _ in range(count)]
    for cursor in cursors:
        cursor.execute(f"USE {database}")
    idle, running = deque(cursors), deque[_Inserting]()

    def finish() -> None:
        one = running.popleft()
        one.done.result()
        one.connection.execute("COMMIT")  # DuckDB keeps in memory what is not committed
        inserted(one.table, one.length)
        idle.append(one.connection)

    try:
        with ThreadPoolExecutor(count, "insert") as threads:
            for table, some in _transactions(parts):
                if not idle:
                    finish()
                cursor = idle.popleft()
                done = threads.submit(_insert, cursor, table, some, insert)
                running.append(_Inserting(cursor, table, sum(part.length for part in some), done))
            while running:
                finish()
    except BaseException:
        for cursor in cursors:
            with suppress(duckdb.Error):  # not all have a transaction
                cursor.execute("ROLLBACK")
        raise
    finally:
        for cursor in cursors:
            cursor.close()


def _insert(cursor: duckdb.DuckDBPyConnection, table: str, parts: Sequence[LargeRows], insert: Insert) -> None:
    cursor.execute("BEGIN")
    for part in parts:
        insert(cursor, table, part.make())


def _transactions(parts: Sequence[LargeRows]) -> Iterator[tuple[str, list[LargeRows]]]:
    for table, of_table in groupby(parts, lambda part: part.table):
        some, count = list[LargeRows](), 0
        for part in of_table:
            some.append(part)
            count += part.length
            if count >= _ROWS:
                yield table, some
                some, count = [], 0
        if some:
            yield table, some


def _cores(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the number of cores that this process may use, as DuckDB knows it from affinity and control group."""
    found = connection.execute("SELECT current_setting('threads')").fetchone()
    return int(found[0]) if found is not None else 1
