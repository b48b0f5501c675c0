"""The index file: built under a temporary name, renamed, and attached read-only."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope.tracer import log_format
from stepscope.viewer import ingest as ingest_package
from stepscope.viewer.ingest.rows import Rows
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.store.engine import duckdb

NAME = "trace"
"""Under which the index is attached."""
SCHEMA = Path(__file__).with_name("schema.sql").read_text()
_SMALL_BYTES = 1 << 26
_SMALL_BLOCK, _LARGE_BLOCK = 16_384, 262_144
"""Sizes of DuckDB's blocks: a small trace has many small tables, each of which takes a block for each column."""
_FEW_ROWS = 5_000
"""So many go in faster without numpy than it takes to import it."""
NO_EXTENSIONS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def index_key(sources: Sequence[Source]) -> str:
    """Changes with the logs' paths, sizes and times, with the schema, and with the code that reads logs."""
    digest = hashlib.sha256(f"{SCHEMA}\0{duckdb.__version__}".encode())
    for code in _code_that_reads_logs():
        digest.update(code.read_bytes())
    for source in sources:
        digest.update(f"\0{source.path}\0{source.size}\0{source.mtime_ns}".encode("utf-8", "surrogateescape"))
        digest.update(source.ring or b"")  # its time says little: it is written through memory
    return digest.hexdigest()


def _code_that_reads_logs() -> list[Path]:
    grammar = Path(log_format.__file__)
    ingest = sorted(path for folder in ingest_package.__path__ for path in Path(folder).glob("*.py"))
    return [grammar, *sorted(grammar.parent.glob("*records.py")), grammar.with_name("ring_format.py"), *ingest]


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
    return duckdb.connect(":memory:", config=NO_EXTENSIONS)


def _attached(connection: duckdb.DuckDBPyConnection, index: Path, key: str) -> duckdb.DuckDBPyConnection | None:
    """Attach read-only and shut every other way to files; None, and closed, when it is not the index of `key`."""
    try:
        connection.execute(f"ATTACH {quoted(index)} AS {NAME} (READ_ONLY)")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        if connection.execute(f"SELECT value FROM {NAME}.meta WHERE key = 'key'").fetchone() == (key,):
            return connection
    except duckdb.Error:
        pass
    connection.close()
    return None


def _write(connection: duckdb.DuckDBPyConnection, new: Path, key: str, rows: Rows, block: int) -> None:
    connection.execute(f"ATTACH {quoted(new)} AS building (BLOCK_SIZE {block}); USE building")
    connection.execute(f"BEGIN; {SCHEMA}")
    counts = {table: len(found) for table, found in rows.tables.items()}
    for table, found in rows.tables.items():
        _insert(connection, table, found)
    for table, parts in rows.columns.items():
        from stepscope.viewer.ingest.columns import joined

        columns = joined(parts)
        counts[table] = counts.get(table, 0) + len(next(iter(columns.values())))
        _insert_columns(connection, table, columns)
    _insert(connection, "meta", [("key", key), *((f"count:{table}", str(count)) for table, count in counts.items())])
    connection.execute("COMMIT; USE memory; DETACH building")


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    if not rows:
        return
    if len(rows) <= _FEW_ROWS and hasattr(connection, "appender"):  # DuckDB 2.0 and newer
        appender = connection.appender(table)
        appender.append_rows(rows)
        appender.flush()
    else:
        from stepscope.viewer.ingest.columns import columns_of

        _insert_columns(connection, table, columns_of(rows))


def _insert_columns(connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Any]) -> None:
    values = "*"
    if not hasattr(connection, "appender"):
        columns, values = _with_masks_apart(columns)
    connection.register("new_rows", columns)
    connection.execute(f"INSERT INTO {table} SELECT {values} FROM new_rows")
    connection.unregister("new_rows")


def _with_masks_apart(columns: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """For DuckDB before 2.0, which does not look at masks: they become columns. With what to select then."""
    from numpy import ma

    apart: dict[str, Any] = {}
    values = []
    for number, column in enumerate(columns.values()):
        apart[f"c{number}"] = ma.getdata(column)
        masked = isinstance(column, ma.MaskedArray)
        if masked:
            apart[f"m{number}"] = ma.getmaskarray(column)
        values.append(f"CASE WHEN NOT m{number} THEN c{number} END" if masked else f"c{number}")
    return apart, ", ".join(values)


def quoted(path: Path) -> str:
    """A path in a statement."""
    return "'" + str(path).replace("'", "''") + "'"
