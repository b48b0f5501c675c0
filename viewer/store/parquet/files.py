"""Writes the tables of an index as Parquet files, and copies them into a STORE."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from stepscope.viewer.store.index import ROW_COUNT
from stepscope.viewer.store.isolated_connection import NAME, quoted
from stepscope.viewer.store.parquet.layout import TABLES, TableFile

_PIECE_BYTES = 1 << 20


def write_tables(connection: duckdb.DuckDBPyConnection, folder: Path, address: str) -> dict[str, TableFile]:
    """Write each table that has rows of the index attached to `connection` to `folder`. `address` is the address of its
    only log.

    Raises OSError if a file cannot be written, or has another number of rows than were inserted into its table.
    """
    connection.execute(f"SET threads = 1; USE {NAME}")
    counted = connection.execute(f"SELECT key, value FROM meta WHERE starts_with(key, '{ROW_COUNT}')").fetchall()
    rows = {str(key).removeprefix(ROW_COUNT): int(value) for key, value in counted}
    rows["meta"] = _count(connection, "SELECT count(*) FROM meta")
    return {
        table: _write_table(connection, table, rows[table], folder / f"{table}.parquet", address)
        for table in TABLES
        if rows.get(table)
    }


def put_whole(fs: Any, file: Path, path: str, expected: TableFile) -> None:
    """Copy a file to `path` on a file system of fsspec, and read it back. Raises OSError if the bytes differ."""
    fs.put_file(str(file), path)
    with fs.open(path, "rb") as stream:
        if _digest(iter(lambda: stream.read(_PIECE_BYTES), b"")) != expected.sha256:
            raise OSError(f"{path} is not what was written there")


def _write_table(
    connection: duckdb.DuckDBPyConnection, table: str, rows: int, file: Path, address: str
) -> TableFile:  # fmt: skip
    # The path in the index is local, so the address of a remote log has lost a slash.
    columns = "* REPLACE ($address AS path)" if table == "logs" else "*"
    try:
        connection.execute(
            f"COPY (SELECT {columns} FROM {table}) TO {quoted(file)} (FORMAT parquet, COMPRESSION zstd)",
            {"address": address} if table == "logs" else {},
        )
        written = _count(connection, f"SELECT coalesce(sum(num_rows), 0) FROM parquet_file_metadata({quoted(file)})")
    except duckdb.IOException as error:
        raise OSError(str(error)) from None
    if written != rows:
        raise OSError(f"{file.name} holds {written} rows of {rows}")
    with file.open("rb") as stream:
        return TableFile(rows, file.stat().st_size, _digest(iter(lambda: stream.read(_PIECE_BYTES), b"")))


def _count(connection: duckdb.DuckDBPyConnection, statement: str) -> int:
    found = connection.execute(statement).fetchone()
    return int(found[0]) if found else 0


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
