"""Builds and opens the index: a file that is written under a temporary name, renamed and attached read-only, or a
database in memory."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import duckdb

from stepscope.tracer.schema import log_format
from stepscope.viewer import ingest as ingest_package
from stepscope.viewer.ingest.rows import IndexRows, TableRows
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.ingest.watch import tell
from stepscope.viewer.kernel_source import arithmetic
from stepscope.viewer.store.cache_folder import BUILDING, hold, note_use, spill_folder
from stepscope.viewer.store.code_digest import code_digest
from stepscope.viewer.store.isolated_connection import NAME, config, quoted
from stepscope.viewer.store.large_tables import insert_large
from stepscope.viewer.store.valid_rows import REFUSALS, append, valid_rows
from stepscope.viewer.text import clean

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Columns

SCHEMA = Path(__file__).with_name("schema.sql").read_text()
ROW_COUNT = "count:"
"""Prefix of the keys of `meta` with the number of rows of each table."""
_SMALL_BYTES = 1 << 26
_SMALL_BLOCK, _LARGE_BLOCK = 16_384, 262_144
"""Sizes of DuckDB's blocks in bytes. A small trace has many small tables, which take one block per column."""
_BUILDING_MEMORY = "128MB"
"""DuckDB's memory while it writes a file; it holds no more than the blocks of the file there."""
_FEW_ROWS = 5_000
"""Maximum number of rows that are inserted faster without numpy than it takes to import numpy."""


CODE_THAT_READS_LOGS = (
    arithmetic.__file__, clean.__file__, os.path.dirname(log_format.__file__), *ingest_package.__path__,
)  # fmt: skip


def index_key(sources: Sequence[Source]) -> str:
    """Return a key that depends on the logs' paths, sizes and times, the schema, and the code that reads logs."""
    digest = hashlib.sha256(f"{SCHEMA}\0{duckdb.__version__}".encode())
    digest.update(code_digest(*CODE_THAT_READS_LOGS))
    for source in sources:
        digest.update(f"\0{source.path}\0{source.size}\0{source.mtime_ns}".encode("utf-8", "surrogateescape"))
        digest.update(source.ring or b"")  # its time says little, because it is mapped into memory
    return digest.hexdigest()


class OpenIndex(NamedTuple):
    """A connection to an index, and the open file that protects the index from removal."""

    connection: duckdb.DuckDBPyConnection
    held: BinaryIO | None

    def close(self) -> None:
        self.connection.close()
        if self.held is not None:
            self.held.close()


def open_index(index: Path, key: str) -> OpenIndex | None:
    """Open the index if it has this key; return None if it is another, broken, locked or missing."""
    held = hold(index)
    if held is None:
        return None
    found = _attached(_connect(os.fstat(held.fileno()).st_size), index, key, held)
    if found is not None:
        note_use(index)
    return found


def build_index(index: Path, key: str, rows: IndexRows, log_bytes: int) -> OpenIndex | None:
    """Write the index and open it; return None if it cannot be written or another program has locked it."""
    block = _SMALL_BLOCK if log_bytes < _SMALL_BYTES else _LARGE_BLOCK
    try:
        try:
            return _build(index, key, rows, block, log_bytes)
        except REFUSALS as error:
            if isinstance(error, duckdb.IOException):
                raise
            return _build(index, key, valid_rows(rows, SCHEMA, _insert_columns), block, log_bytes)
    except (OSError, duckdb.IOException):
        return None


def _build(index: Path, key: str, rows: IndexRows, block: int, log_bytes: int) -> OpenIndex | None:
    connection, held = _connect(log_bytes), None
    try:
        index.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=index.parent, prefix=BUILDING, ignore_cleanup_errors=True) as folder:
            new = Path(folder, "index")
            _write_empty(connection, new, block)
            connection.execute(f"ATTACH {quoted(new)} AS building")
            connection.execute(f"SET memory_limit = '{_BUILDING_MEMORY}'")
            if hasattr(connection, "appender"):  # DuckDB 2.0 and newer
                connection.execute("SET write_buffer_row_group_count = 1")
            _write(connection, "building", key, rows)
            connection.execute("DETACH building; RESET memory_limit")
            new.chmod(0o600)
            held = hold(new)
            os.replace(new, index)
    except BaseException:
        OpenIndex(connection, held).close()
        raise
    return _attached(connection, index, key, held)


def _write_empty(connection: duckdb.DuckDBPyConnection, path: Path, block: int) -> None:
    """Write an index without rows. To copy one takes a quarter of the time that the tables take to be created."""
    if block in _EMPTY:
        path.write_bytes(_EMPTY[block])
        return
    connection.execute(f"ATTACH {quoted(path)} AS building (BLOCK_SIZE {block})")
    connection.execute(f"USE building; BEGIN; {SCHEMA}; COMMIT; USE memory; DETACH building")
    _EMPTY[block] = path.read_bytes()


_EMPTY: dict[int, bytes] = {}
"""Indices without rows, by the size of their blocks."""


def build_in_memory(key: str, rows: IndexRows, log_bytes: int) -> duckdb.DuckDBPyConnection:
    """Build an index in memory, for use where no file can be written."""
    connection = _connect(log_bytes)
    connection.execute(f"ATTACH ':memory:' AS {NAME}; USE {NAME}; {SCHEMA}")
    try:
        _write(connection, NAME, key, rows)
    except REFUSALS:
        connection.execute(f"ROLLBACK; USE memory; DETACH {NAME}; ATTACH ':memory:' AS {NAME}; USE {NAME}; {SCHEMA}")
        _write(connection, NAME, key, valid_rows(rows, SCHEMA, _insert_columns))
    return connection


def _connect(size: int) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={**config(size), "temp_directory": spill_folder()})


def _attached(connection: duckdb.DuckDBPyConnection, index: Path, key: str, held: BinaryIO | None) -> OpenIndex | None:
    """Attach the index read-only and bar all other files; close it and return None if it does not have this key."""
    try:
        connection.execute(f"ATTACH {quoted(index)} AS {NAME} (READ_ONLY)")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        if connection.execute(f"SELECT value FROM {NAME}.meta WHERE key = 'key'").fetchone() == (key,):
            return OpenIndex(connection, held)
    except duckdb.Error:
        pass
    OpenIndex(connection, held).close()
    return None


def _write(connection: duckdb.DuckDBPyConnection, database: str, key: str, rows: IndexRows) -> None:
    connection.execute(f"USE {database}; BEGIN")
    counts = {table: len(found) for table, found in rows.tables.items()}
    for table, found in rows.tables.items():
        _insert(connection, table, found)
    if rows.columns or rows.later:
        parts, done = list(rows.large_tables()), 0
        total = sum(part.length for part in parts)

        def inserted(table: str, count: int) -> None:
            nonlocal done
            counts[table] = counts.get(table, 0) + count
            done += count
            tell(f"writing {done:,} of {total:,} rows of the index", done, total)

        connection.execute("COMMIT")
        try:
            insert_large(connection, database, parts, _insert_columns, inserted)
        finally:
            connection.execute("BEGIN")
    meta = {"key": key, **{ROW_COUNT + table: str(count) for table, count in counts.items()}}
    append(connection, "meta", {"key": list(meta), "value": list(meta.values())})
    connection.execute("COMMIT; USE memory")


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: TableRows) -> None:
    if not len(rows):
        return
    if len(rows) <= _FEW_ROWS and hasattr(connection, "appender"):  # DuckDB 2.0 and newer
        append(connection, table, rows.columns)
    else:
        from stepscope.viewer.ingest.columns import as_column

        _insert_columns(connection, table, {name: as_column(values) for name, values in rows.columns.items()})


def _insert_columns(connection: duckdb.DuckDBPyConnection, table: str, columns: Columns) -> int:
    """Insert the rows and return their number."""
    from stepscope.viewer.ingest.columns import Texts, plain

    texts: dict[str, Texts] = {}
    if hasattr(connection, "appender"):
        texts = {name: column for name, column in columns.items() if isinstance(column, Texts)}
        arrays: dict[str, Any] = {name: column for name, column in columns.items() if name not in texts}
        values = ", ".join(f'"{name}"' for name in arrays)
    else:
        arrays, values = _with_masks_apart(plain(columns))
    count = len(next(iter(arrays.values())))
    for name, column in texts.items():
        if len(column.texts) == 1:
            values += f', ?::VARCHAR AS "{name}"'
        else:
            arrays[name] = column.at + 1  # lists count from 1
            values += f', (?::VARCHAR[])["{name}"] AS "{name}"'
    distinct = [column.texts[0] if len(column.texts) == 1 else column.texts for column in texts.values()]
    connection.register("new_rows", arrays)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT {values} FROM new_rows", distinct)
    connection.unregister("new_rows")
    return count


def _with_masks_apart(columns: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the columns with their masks as further columns, and the expressions that join both. DuckDB before 2.0
    ignores masks, and fails on a column of objects that begins with many None."""
    import numpy as np
    from numpy import ma

    apart: dict[str, Any] = {}
    values = []
    for name, column in columns.items():
        data, mask = ma.getdata(column), ma.getmaskarray(column)
        if data.dtype == object:
            mask = mask | (data == None)  # noqa: E711  # element by element
            data = np.where(mask, "", data)
        apart[name] = data
        is_null = f"{name} is null"
        if mask.any():
            apart[is_null] = mask
        values.append(f'CASE WHEN NOT "{is_null}" THEN "{name}" END AS "{name}"' if mask.any() else f'"{name}"')
    return apart, ", ".join(values)
