"""The index file: built under a temporary name, renamed, and attached read-only."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb

import tracer.log_format
import tracer.records
import viewer.ingest
from viewer.ingest.rows import Rows
from viewer.ingest.sources import Source

NAME = "trace"
"""Under which the index is attached."""
SCHEMA = Path(__file__).with_name("schema.sql").read_text()
_SMALL_BYTES = 1 << 26
_SMALL_BLOCK, _LARGE_BLOCK = 16_384, 262_144
"""Sizes of DuckDB's blocks: a small trace has many small tables, each of which takes a block for each column."""
_NO_EXTENSIONS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def index_key(sources: Sequence[Source]) -> str:
    """Changes with the logs' paths, sizes and times, with the schema, and with the code that reads logs."""
    digest = hashlib.sha256(f"{SCHEMA}\0{duckdb.__version__}".encode())
    for code in [tracer.log_format.__file__, tracer.records.__file__, *_ingest_files()]:
        digest.update(Path(code).read_bytes())
    for source in sources:
        digest.update(f"\0{source.path}\0{source.size}\0{source.mtime_ns}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _ingest_files() -> list[str]:
    return sorted(str(path) for folder in viewer.ingest.__path__ for path in Path(folder).glob("*.py"))


def open_index(index: Path, key: str) -> duckdb.DuckDBPyConnection | None:
    """A connection to the index when it is the one of `key`; None for any other, broken, locked or missing file."""
    return _attached(_connect(), index, key) if index.is_file() else None


def build_index(index: Path, key: str, rows: Rows, log_bytes: int) -> duckdb.DuckDBPyConnection | None:
    """Write the index and open it; None where it cannot be written, or where another program holds it."""
    connection = _connect()
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=index.parent, prefix=".stepscope-") as folder:
            new = Path(folder, "index")
            _write(connection, new, key, rows, _SMALL_BLOCK if log_bytes < _SMALL_BYTES else _LARGE_BLOCK)
            os.replace(new, index)
    except (OSError, duckdb.IOException):
        connection.close()
        return None
    return _attached(connection, index, key)


def _connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config=_NO_EXTENSIONS)


def _attached(connection: duckdb.DuckDBPyConnection, index: Path, key: str) -> duckdb.DuckDBPyConnection | None:
    """Attach read-only and shut every other way to files; None, and closed, when it is not the index of `key`."""
    try:
        connection.execute(f"ATTACH {_quoted(index)} AS {NAME} (READ_ONLY)")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        if connection.execute(f"SELECT value FROM {NAME}.meta WHERE key = 'key'").fetchone() == (key,):
            return connection
    except duckdb.Error:
        pass
    connection.close()
    return None


def _write(connection: duckdb.DuckDBPyConnection, new: Path, key: str, rows: Rows, block: int) -> None:
    connection.execute(f"ATTACH {_quoted(new)} AS building (BLOCK_SIZE {block}); USE building")
    connection.execute(f"BEGIN; {SCHEMA}")
    for table, columns in rows.drain():
        connection.register("new_rows", columns)
        connection.execute(f"INSERT INTO {table} SELECT * FROM new_rows")
        connection.unregister("new_rows")
        connection.execute("INSERT INTO meta VALUES (?, ?)", [f"count:{table}", str(len(next(iter(columns.values()))))])
    connection.execute("INSERT INTO meta VALUES ('key', ?)", [key])
    connection.execute("COMMIT; USE memory; DETACH building")


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
