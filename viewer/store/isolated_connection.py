"""Opens an index for the user's statements in a separate process that can open no other file."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import duckdb

NAME = "trace"
"""Name under which an index is attached."""
Config: TypeAlias = dict[str, str | bool | int | float | list[str]]
NO_EXTENSIONS: Config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_OF_LARGE: Config = {"merge_join_threshold": 0, "nested_loop_join_threshold": 0}
"""DuckDB takes a list of parameters for one row, and would compare all pairs of rows where it joins ranges with it."""
SMALL_BYTES = 8 << 20
"""Size of an index or its logs below which starting threads and dividing queries among them takes longer than it
saves, as does sorting ranges before a join."""


def config(size: int) -> Config:
    """Return DuckDB's settings for an index of this size in bytes."""
    return {**NO_EXTENSIONS, **({"threads": 1} if size < SMALL_BYTES else _OF_LARGE)}


def quoted(path: Path) -> str:
    """Return a path as a literal of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


def connect(index: Path) -> duckdb.DuckDBPyConnection:
    """Connect to an index; the connection can still be configured."""
    connection = duckdb.connect(":memory:", config=config(index.stat().st_size))
    connection.execute(f"ATTACH {quoted(index)} AS {NAME} (READ_ONLY); USE {NAME}")
    return connection


def lock(connection: duckdb.DuckDBPyConnection, memory_bytes: int, most_threads: int) -> None:
    """Prevent later statements from opening files, spilling, exceeding the memory and changing the settings."""
    connection.execute(
        f"SET threads = least(current_setting('threads'), {most_threads});"
        f" SET memory_limit = '{memory_bytes}B'; SET temp_directory = '';"
        " SET enable_external_access = false; SET lock_configuration = true"
    )
