"""Opens the indexes of two traces in one connection, so that a statement can join their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.isolated_connection import NAME, connect, quoted
from stepscope.viewer.store.trace import IN_MEMORY, Trace

_OTHER = "other"
Names = Mapping[str, str]
"""The name of each side's index, with which a statement is formatted."""


@contextmanager
def both(left: Trace, right: Trace) -> Iterator[tuple[duckdb.DuckDBPyConnection, Names]]:
    """Yield a connection to both indexes with their names. Temporary tables are in memory; the indexes are read-only.

    Raises StepscopeError if an index is not one file."""
    for trace in (left, right):
        if trace.index == IN_MEMORY:
            raise StepscopeError("No folder can be written that could hold the index, which a comparison needs.")
        if not trace.is_one_file:
            raise StepscopeError("A STORE cannot be compared: give the logs from which it was made.")
    connection = connect(left.index)
    try:
        name = NAME
        if right.index != left.index:
            name = _OTHER
            connection.execute(f"ATTACH {quoted(right.index)} AS {name} (READ_ONLY)")
        yield connection, {"left": NAME, "right": name}
    finally:
        connection.close()
