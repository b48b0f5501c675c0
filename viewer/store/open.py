"""Open a trace: find its index, or build it, and read payloads out of the logs."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from tracer.log_format import decode_payload
from viewer.ingest.logs import read_logs
from viewer.ingest.rows import Rows
from viewer.ingest.sources import STDIN, Source, cache_dir, find_logs

INDEX_SUFFIX = ".stepscope.duckdb"
SCHEMA = files("viewer.store").joinpath("schema.sql").read_text()
INGEST_VERSION = "1"
"""Goes up when the same log gives other rows, so that older indexes are built anew."""

_OPEN: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_LOCKED: dict[str, Any] = {**_OPEN, "enable_external_access": "false", "lock_configuration": "true"}


class Trace:
    """An open trace: its logs and its index. Close it, or use it as a context manager."""

    def __init__(self, sources: Sequence[Source], connection: duckdb.DuckDBPyConnection, index: Path) -> None:
        self.logs = list(sources)
        self.index = index
        self._connection = connection
        self._lock = threading.Lock()
        self._files: dict[int, Any] = {}

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self.close()

    @property
    def index_bytes(self) -> int:
        """Size of the index file."""
        return self.index.stat().st_size if self.index.exists() else 0

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the index, for one thread or one query."""
        with self._lock:
            return self._connection.cursor()

    def header(self, record: int) -> bytes:
        """The JSON header line of `record`, its prefix included; empty when there is no such record."""
        place = self._place(record, "byte, header_bytes, false")
        return self._read(place)

    def payload(self, record: int) -> bytes:
        """The payload of `record` as the program wrote it; empty when there is none."""
        place = self._place(record, "payload_byte, payload_bytes, crlf")
        raw = self._read(place)
        return decode_payload(raw.replace(b"\r\n", b"\n") if place and place[3] else raw).rstrip(b"\r\n")

    def _place(self, record: int, columns: str) -> tuple[int, int | None, int, bool] | None:
        found = self.cursor().execute(f"SELECT log, {columns} FROM records WHERE record = ?", [record]).fetchone()
        return (found[0], found[1], found[2], found[3]) if found else None

    def _read(self, place: tuple[int, int | None, int, bool] | None) -> bytes:
        if place is None or place[1] is None:
            return b""
        log, start, length, _ = place
        with self._lock:
            if log not in self._files:
                self._files[log] = self.logs[log].data_path.open("rb")
            file = self._files[log]
            file.seek(start)
            data: bytes = file.read(length)
            return data

    def close(self) -> None:
        """Release the index and the logs. The trace cannot be used afterwards."""
        with self._lock:
            self._connection.close()
            for file in self._files.values():
                file.close()
            self._files.clear()


def open_trace(path: str | os.PathLike[str], *, index_dir: str | os.PathLike[str] | None = None) -> Trace:
    """Open the trace at `path`: a log, a `.gz` of one, a folder of logs, or `-` for standard input.

    The index lies beside the log, or in `index_dir`, or in the user's cache folder where the first cannot be
    written; one that is there and current is used, any other is built.
    Raises StepscopeError when there is no log, or one of a newer format.
    """
    sources = find_logs(path)
    key = _key(sources)
    rows: Rows | None = None
    for index in _index_paths(path, sources, key, index_dir):
        connection = _open_current(index, key)
        if connection is None:
            rows = rows or read_logs(sources)
            connection = _build(index, key, rows)
        if connection is not None:
            return Trace(sources, connection, index)
    raise AssertionError("the last index path is always new")


def _key(sources: Sequence[Source]) -> str:
    digest = hashlib.sha256(f"{SCHEMA}\0{INGEST_VERSION}\0{duckdb.__version__}".encode())
    for source in sources:
        digest.update(f"\0{source.path}\0{source.size}\0{source.mtime_ns}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _index_paths(
    path: str | os.PathLike[str], sources: Sequence[Source], key: str, index_dir: str | os.PathLike[str] | None
) -> Iterator[Path]:
    """Where the index may lie, best first; the last is a file that nobody else has."""
    trace = Path(path).absolute()
    name = f"{trace.name}{INDEX_SUFFIX}"
    if index_dir is not None:
        yield Path(index_dir).absolute() / name
    elif str(path) != STDIN:
        yield trace / INDEX_SUFFIX if trace.is_dir() else trace.with_name(name)
    folder = cache_dir()
    yield folder / f"{key[:32]}{INDEX_SUFFIX}"
    yield Path(tempfile.mkdtemp(dir=folder)) / INDEX_SUFFIX.lstrip(".")


def _open_current(index: Path, key: str) -> duckdb.DuckDBPyConnection | None:
    """A connection to `index` when it is the one of `key`; None for any other, broken, locked or missing file."""
    if not index.is_file():
        return None
    try:
        connection = duckdb.connect(str(index), read_only=True, config=_LOCKED)
    except duckdb.Error:
        return None
    try:
        found = connection.execute("SELECT value FROM meta WHERE key = 'key'").fetchone()
        if found == (key,):
            return connection
    except duckdb.Error:
        pass
    connection.close()
    return None


def _build(index: Path, key: str, rows: Rows) -> duckdb.DuckDBPyConnection | None:
    """Write the index to a temporary name, rename it and open it; None where that folder cannot be written."""
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=index.parent, prefix=".stepscope-", suffix=".tmp")
    except OSError:
        return None
    os.close(descriptor)
    os.unlink(name)
    try:
        _write(name, key, rows)
        os.replace(name, index)
    except (OSError, duckdb.IOException):
        return None
    finally:
        for leftover in (name, f"{name}.wal"):
            if os.path.exists(leftover):
                os.unlink(leftover)
    return _open_current(index, key)


def _write(name: str, key: str, rows: Rows) -> None:
    with duckdb.connect(name, config=_OPEN) as connection:
        connection.execute(f"BEGIN; {SCHEMA}")
        for table, columns in rows.drain():
            connection.register("new_rows", columns)
            connection.execute(f"INSERT INTO {table} SELECT * FROM new_rows")
            connection.unregister("new_rows")
        connection.execute("INSERT INTO meta VALUES ('key', ?)", [key])
        connection.execute("COMMIT")
