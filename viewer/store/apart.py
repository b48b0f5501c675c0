"""Opens an index for the user's statements in a separate process that can open no other file."""

from __future__ import annotations

from pathlib import Path

import duckdb

NAME = "trace"
"""Name under which an index is attached."""
NO_EXTENSIONS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def quoted(path: Path) -> str:
    """Return a path as a literal of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


def connect(index: Path) -> duckdb.DuckDBPyConnection:
    """Connect to an index; the connection can still be configured."""
    connection = duckdb.connect(":memory:", config=NO_EXTENSIONS)
    connection.execute(f"ATTACH {quoted(index)} AS {NAME} (READ_ONLY); USE {NAME}")
    return connection


def lock(connection: duckdb.DuckDBPyConnection, memory_bytes: int, threads: int) -> None:
    """Prevent later statements from opening files, spilling, exceeding the memory and changing the settings."""
    connection.execute(
        f"SET memory_limit = '{memory_bytes}B'; SET threads = {threads}; SET temp_directory = '';"
        " SET enable_external_access = false; SET lock_configuration = true"
    )
