"""Keeps the tables of a STORE in a file of DuckDB in the user's cache folder: copies of small ones, views of others.

A query of a view opens every file of its table, which takes longer than a query of a copy by a factor of ten, and to
copy the tables of thousands of ranks takes seconds. The file is used as long as the STORE holds the same files.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import NamedTuple

import duckdb
from fsspec.implementations.local import LocalFileSystem

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.cache_folder import (
    BUILDING,
    hold,
    index_name,
    indexes_folder,
    make_room,
    note_use,
    temporary_folders,
)
from stepscope.viewer.store.code_digest import code_digest
from stepscope.viewer.store.index import SCHEMA
from stepscope.viewer.store.isolated_connection import NAME, quoted
from stepscope.viewer.store.parquet.layout import TABLES, Manifest, Store
from stepscope.viewer.store.trace import IN_MEMORY, Closeable

PROTOCOL = "stepscope"
_BLOCK = 16_384
_MOST_COPIED_BYTES = 1 << 20
"""Size of the files of a table up to which it is copied."""
_COPIED_BYTES_EACH = 1 << 13
"""Mean size of the files of a table up to which it is copied, however many they are: such a file is mostly its footer,
and reading the footers of thousands of ranks again takes seconds in each query."""


class TablesFile(NamedTuple):
    """The attached file with the tables of a STORE, and what protects or removes it when it is closed."""

    path: Path
    held: Sequence[Closeable]


@dataclass(frozen=True)
class _Table:
    """A table of the files of some logs, and whether it is copied."""

    name: str
    logs: list[Manifest]
    is_copied: bool


def attach_tables(connection: duckdb.DuckDBPyConnection, store: Store) -> TablesFile:
    """Attach the kept file with the tables of `store`, which is written first if it is missing: to the user's cache
    folder, else to a temporary folder. In memory, where no file can be written, there are views only."""
    kept = _kept_path(store)
    if kept is not None:
        held = hold(kept)
        if held is not None:
            if _is_attached(connection, kept):
                note_use(kept)
                return TablesFile(kept, [held])
            held.close()
        if _write_kept(connection, store, kept) and (held := hold(kept)) is not None:
            attach(connection, kept)
            make_room(kept)
            return TablesFile(kept, [held])
    for folder in temporary_folders():
        path = Path(folder.name, "tables")
        try:
            _write(connection, store, path)
        except duckdb.IOException:
            folder.close()
            continue
        attach(connection, path)
        return TablesFile(path, [folder])
    attach_views(connection, store)
    return TablesFile(IN_MEMORY, [])


def attach(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    connection.execute(f"ATTACH {quoted(path)} AS {NAME} (READ_ONLY)")


def attach_views(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Attach views of all tables, in memory."""
    connection.execute(f"ATTACH ':memory:' AS {NAME}")
    _write_tables(connection, NAME, store, with_copies=False)


def file_name(manifest: Manifest, table: str) -> str:
    """Return the name of a file of a STORE in the file system that DuckDB reads it through."""
    return f"{manifest.number}/{table}.parquet"


def _kept_path(store: Store) -> Path | None:
    try:
        path = indexes_folder() / index_name([store.root.address], _key(store))
        return path if str(path).encode() else None
    except (OSError, StepscopeError, UnicodeEncodeError):
        return None


def _key(store: Store) -> str:
    """Return a key that depends on the bytes of all files of a STORE, on what is copied of them, and on the views."""
    digest = hashlib.sha256(f"{SCHEMA}\0{duckdb.__version__}".encode())
    digest.update(code_digest(os.path.dirname(__file__)))
    for table in _tables(store):
        digest.update(f"\0{table.name}\0{table.is_copied}".encode())
        for log in table.logs:
            digest.update(f"\0{log.number}\0{log.tables[table.name].sha256}".encode())
    return digest.hexdigest()


def _is_attached(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    try:
        attach(connection, path)
    except duckdb.Error:  # the file is broken, and is written again
        return False
    return True


def _write_kept(connection: duckdb.DuckDBPyConnection, store: Store, path: Path) -> bool:
    """Write the file under another name first, so that it is never seen half written. Return whether that is done."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=BUILDING, ignore_cleanup_errors=True) as folder:
            new = Path(folder, "tables")
            _write(connection, store, new)
            new.chmod(0o600)
            os.replace(new, path)
    except (OSError, duckdb.IOException):
        return False
    return True


def _write(connection: duckdb.DuckDBPyConnection, store: Store, path: Path) -> None:
    connection.execute(f"ATTACH {quoted(path)} AS building (BLOCK_SIZE {_BLOCK})")
    try:
        _write_tables(connection, "building", store, with_copies=True)
    finally:
        connection.execute("USE memory; DETACH building")


def _write_tables(connection: duckdb.DuckDBPyConnection, database: str, store: Store, with_copies: bool) -> None:
    """Write the tables of an index: a copy or a view if any log has rows, else an empty table."""
    connection.execute(f"USE {database}; BEGIN; {SCHEMA}; COMMIT")
    for table in _tables(store):
        connection.execute(f"DROP TABLE {table.name}")
        if not (with_copies and table.is_copied and _is_copied(connection, store, table)):
            names = [f"{PROTOCOL}://{file_name(log, table.name)}" for log in table.logs]
            connection.execute(f"CREATE VIEW {table.name} AS {_query(table.name, names)}")
    connection.execute("USE memory")


def _is_copied(connection: duckdb.DuckDBPyConnection, store: Store, table: _Table) -> bool:
    try:
        connection.execute(f"CREATE TABLE {table.name} AS {_query(table.name, _fast_names(store, table))}")
    except duckdb.Error:  # a damaged file is reported by the parts that need it
        return False
    return True


def _fast_names(store: Store, table: _Table) -> list[str]:
    """Return the names of the files of a table: paths if DuckDB can open them itself, which takes half of the time.

    DuckDB takes a path with a wildcard for a pattern, which may match the files of another STORE.
    """
    if isinstance(store.root.fs, LocalFileSystem) and escape(store.root.path) == store.root.path:
        return [store.root.table(log, table.name) for log in table.logs]
    return [f"{PROTOCOL}://{file_name(log, table.name)}" for log in table.logs]


def _query(table: str, names: Sequence[str]) -> str:
    """Return the query of a table: the rows of all logs, in `meta` the sums of its counts."""
    files = f"read_parquet([{', '.join(_text(name) for name in names)}], hive_partitioning = false)"
    if table != "meta":
        return f"SELECT * FROM {files}"
    return f"SELECT key, sum(CAST(value AS BIGINT))::VARCHAR AS value FROM {files} WHERE key <> 'key' GROUP BY key"


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _tables(store: Store) -> Iterator[_Table]:
    """Yield the tables that have files."""
    for name in TABLES:
        logs = [manifest for manifest in store.manifests if name in manifest.tables]
        size = sum(log.tables[name].size_bytes for log in logs)
        if logs:
            yield _Table(name, logs, size <= max(_MOST_COPIED_BYTES, _COPIED_BYTES_EACH * len(logs)))
