"""Opens a STORE as a trace: DuckDB views over its Parquet files, and copies of its small tables.

DuckDB reaches the files only through a read-only file system that contains no other files, so a statement of the user
cannot reach anything else. Payloads are read from the logs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
from fsspec import AbstractFileSystem

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import change_of, resolve
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.ingest.unpack import unpack_stream
from stepscope.viewer.store.cache_folder import spill_folder
from stepscope.viewer.store.isolated_connection import NAME, NO_EXTENSIONS
from stepscope.viewer.store.parquet.layout import Manifest, Store, check_schema, read_store
from stepscope.viewer.store.parquet.tables_file import PROTOCOL, attach, attach_tables, attach_views, file_name
from stepscope.viewer.store.trace import IN_MEMORY, PAYLOAD, Trace

_MISSING = Source(Path("–"), Path("–"), 0, 0)
"""Placeholder for a log that is not in the STORE."""


class StoreTrace(Trace):
    """An open STORE. Payloads of logs that cannot be reached are empty, and `notices` say so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._manifests = {manifest.number: manifest for manifest in store.manifests}
        self._in_reach: set[int] = set()
        self._out_of_reach: dict[int, str] = {}
        """Number of a log -> the reason why it cannot be reached."""
        self._incomplete = _incomplete(store)
        self._tables = _StoreFiles(store)
        connection = _connection(store)
        try:
            tables = attach_tables(connection, store)
        except duckdb.Error as error:
            connection.close()
            raise StepscopeError(f"{store.root.address} cannot be opened: {_first_line(error)}.") from None
        _use(connection)
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        sources = [self._source(number) for number in range(max(self._manifests) + 1)]
        super().__init__(sources, connection, tables.path, tables.held)
        for manifest in _one_of_each_folder(store.manifests):
            self._look_for(manifest)

    @property
    def index_bytes(self) -> int:
        return self._store.size_bytes

    @property
    def own_files(self) -> list[Path]:
        return [*map(Path, self._tables.paths), *super().own_files]

    @property
    def notices(self) -> list[str]:
        out_of_reach = [self._out_of_reach_text(list(self._out_of_reach))] if self._out_of_reach else []
        return [*self._incomplete, *out_of_reach]

    def unlocked(self) -> duckdb.DuckDBPyConnection:
        return connect_store(self._store, self.index)

    @property
    def connect_apart(self) -> Callable[[], duckdb.DuckDBPyConnection]:
        return partial(connect_store, self._store, self.index)

    @property
    def is_one_file(self) -> bool:
        return False

    def whole_payload(self, record: int) -> bytes:
        """Return a payload. Raises StepscopeError if its log cannot be reached."""
        payload = self.payload(record)
        for log in {one.log for one in self._ranges([record], PAYLOAD)} & self._out_of_reach.keys():
            raise StepscopeError(self._out_of_reach_text([log]))
        return payload

    def log_bytes(self, log: int, start: int, length: int) -> bytes:
        """Return bytes of a log, b"" if it cannot be reached."""
        if log in self._out_of_reach or log not in self._manifests:
            return b""
        try:
            return super().log_bytes(log, start, length)
        except (OSError, StepscopeError) as error:
            self._out_of_reach[log] = getattr(error, "strerror", None) or str(error)
            return b""

    def _open_log(self, log: int) -> BinaryIO:
        manifest = self._manifests[log]
        if log not in self._in_reach and not self._look_for(manifest):
            raise OSError(self._out_of_reach[log])
        fs, path = resolve(manifest.log.address)
        file: BinaryIO = fs.open(path, "rb")
        if not manifest.is_packed:
            return file
        with file:
            return unpack_stream(file)[0].open("rb")

    def _source(self, number: int) -> Source:
        manifest = self._manifests.get(number)
        if manifest is None:
            return _MISSING
        return Source(Path(manifest.log.address), Path(manifest.log.address), manifest.plain_bytes, 0)

    def _out_of_reach_text(self, logs: Sequence[int]) -> str:
        address, reason = self._manifests[logs[0]].log.address, self._out_of_reach[logs[0]]
        if len(logs) == 1:
            return f"The log {address} cannot be read ({reason}), so its payloads are not shown. Everything else is."
        return (
            f"{len(logs):,} logs cannot be read, the first of them {address} ({reason}), so their payloads are not "
            "shown. Everything else is."
        )

    def _look_for(self, manifest: Manifest) -> bool:
        """Return whether the log of `manifest` still exists and has not changed since it was read."""
        reason = change_of(manifest.log)
        if reason is None:
            self._in_reach.add(manifest.number)
        else:
            self._out_of_reach[manifest.number] = reason
        return reason is None


def open_store(address: str) -> StoreTrace:
    """Open the STORE at `address`. Raises StepscopeError if it cannot be read or has no log."""
    store = read_store(address)
    if not store.manifests:
        raise StepscopeError(f"{address} contains no logs yet; add them with `stepscope ingest`.")
    check_schema(store)
    return StoreTrace(store)


def connect_store(store: Store, tables: Path) -> duckdb.DuckDBPyConnection:
    """Connect to `store` and the file with its tables; the connection can still be configured."""
    connection = _connection(store)
    if tables == IN_MEMORY:
        attach_views(connection, store)
    else:
        attach(connection, tables)
    _use(connection)
    return connection


def _connection(store: Store) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={**NO_EXTENSIONS, "temp_directory": spill_folder()})
    connection.register_filesystem(_StoreFiles(store))
    connection.execute("SET parquet_metadata_cache = true")
    return connection


def _use(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(f"USE {NAME}; SET allowed_directories = ['{PROTOCOL}://']")


class _StoreFiles(AbstractFileSystem):  # type: ignore[misc]
    """Read-only file system with the tables of a STORE under names like ``7/records.parquet``."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._fs = store.root.fs
        self._known = {
            file_name(manifest, table): (store.root.table(manifest, table), file.size_bytes)
            for manifest in store.manifests
            for table, file in manifest.tables.items()
        }

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self._known.values()]

    def open(self, path: str, mode: str = "rb", **_: Any) -> _TableFile:
        if mode != "rb":
            raise PermissionError("the files of a STORE are only read")
        return _TableFile(self._fs, self._file(path)[0])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._file(path)[1], "type": "file"}

    def modified(self, path: str) -> datetime:
        """Return a constant: a file of a STORE is never rewritten."""
        return datetime.fromtimestamp(0, timezone.utc)

    def exists(self, path: str, **_: Any) -> bool:
        return self._strip_protocol(path) in self._known

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path] if self.exists(path) else []

    def _file(self, path: str) -> tuple[str, int]:
        try:
            return self._known[self._strip_protocol(path)]
        except KeyError:
            raise FileNotFoundError(f"{path} is no file of this STORE") from None


class _TableFile:
    """A file that threads of DuckDB read at positions of their own; it is opened at the first read."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path
        self._lock = threading.Lock()
        self._place = threading.local()
        self._file: Any = None

    def seek(self, place: int, whence: int = 0) -> int:
        self._place.at = place
        return place

    def tell(self) -> int:
        return getattr(self._place, "at", 0)

    def read(self, count: int = -1) -> bytes:
        with self._lock:
            if self._file is None:
                self._file = self._fs.open(self._path, "rb")
            self._file.seek(self.tell())
            data: bytes = self._file.read(count)
        self._place.at = self.tell() + len(data)
        return data

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _one_of_each_folder(manifests: Sequence[Manifest]) -> Iterator[Manifest]:
    """Yield one log per folder: logs usually disappear together, and checking thousands of them is slow."""
    by_folder = {manifest.log.address.rpartition("/")[0]: manifest for manifest in manifests if manifest.was_read}
    yield from by_folder.values()


def _incomplete(store: Store) -> list[str]:
    missing = set(store.logs) - {manifest.log.address for manifest in store.manifests}
    if not missing:
        return []
    are = "is" if len(missing) == 1 else "are"
    return [
        f"{len(missing):,} of {len(missing) + len(store.manifests):,} logs {are} missing from this STORE; the first is "
        f"{min(missing)}. Run `stepscope ingest` again to add them."
    ]


def _first_line(error: duckdb.Error) -> str:
    return str(error).partition("\n")[0]
