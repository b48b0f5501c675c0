"""Opens a STORE as a trace: DuckDB views over its Parquet files, and copies of its small tables.

A query of a view opens every file of its table, which takes longer than a query of a copy by a factor of ten.

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
from stepscope.viewer.store.cache_folder import spill_folder, temporary_folder
from stepscope.viewer.store.index import SCHEMA
from stepscope.viewer.store.isolated_connection import NAME, NO_EXTENSIONS, quoted
from stepscope.viewer.store.parquet.layout import TABLES, Manifest, Store, check_schema, read_store
from stepscope.viewer.store.trace import IN_MEMORY, PAYLOAD, Trace

PROTOCOL = "stepscope"
_BLOCK = 16_384
_MOST_COPIED_BYTES = 1 << 20
"""Size of the files of a table up to which it is copied."""
_COPIED_BYTES_EACH = 1 << 13
"""Mean size of the files of a table up to which it is copied, however many they are: such a file is mostly its footer,
and reading the footers of thousands of ranks again takes seconds in each query."""
_MISSING = Source(Path("–"), Path("–"), 0, 0)
"""Placeholder for a log that is not in the STORE."""


class StoreTrace(Trace):
    """An open STORE. Payloads of logs that cannot be reached are empty, and `notices` say so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._scratch = temporary_folder()
        self._manifests = {manifest.number: manifest for manifest in store.manifests}
        self._in_reach: set[int] = set()
        self._out_of_reach: dict[int, str] = {}
        """Number of a log -> the reason why it cannot be reached."""
        self._tables = _StoreFiles(store)
        views = Path(self._scratch.name, "views") if self._scratch is not None else IN_MEMORY
        try:
            connection = connect_store(store, views)
            connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        except duckdb.Error as error:
            if self._scratch is not None:
                self._scratch.cleanup()
            raise StepscopeError(f"{store.root.address} cannot be opened: {_first_line(error)}.") from None
        super().__init__([self._source(number) for number in range(max(self._manifests) + 1)], connection, views)
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
        notices = _incomplete(self._store)
        if self._out_of_reach:
            notices.append(self._out_of_reach_text(list(self._out_of_reach)))
        return notices

    def unlocked(self) -> duckdb.DuckDBPyConnection:
        return connect_store(self._store)

    @property
    def connect_apart(self) -> Callable[[], duckdb.DuckDBPyConnection]:
        return partial(connect_store, self._store)

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

    def close(self) -> None:
        super().close()
        if self._scratch is not None:
            self._scratch.cleanup()

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


def connect_store(store: Store, views: Path = IN_MEMORY) -> duckdb.DuckDBPyConnection:
    """Connect to the files of `store`; the connection can still be configured.

    The views are written to the file `views`, with copies of small tables. In memory there are views only, because
    copying takes longer than the one statement for which such a connection is made.
    """
    connection = duckdb.connect(":memory:", config={**NO_EXTENSIONS, "temp_directory": spill_folder()})
    connection.register_filesystem(_StoreFiles(store))
    connection.execute("SET parquet_metadata_cache = true")
    if views == IN_MEMORY:
        connection.execute(f"ATTACH ':memory:' AS {NAME}")
        _write_views(connection, NAME, store, with_copies=False)
    else:
        connection.execute(f"ATTACH {quoted(views)} AS building (BLOCK_SIZE {_BLOCK})")
        _write_views(connection, "building", store, with_copies=True)
        connection.execute(f"DETACH building; ATTACH {quoted(views)} AS {NAME} (READ_ONLY)")
    connection.execute(f"USE {NAME}; SET allowed_directories = ['{PROTOCOL}://']")
    return connection


class _StoreFiles(AbstractFileSystem):  # type: ignore[misc]
    """Read-only file system with the tables of a STORE under names like ``7/records.parquet``."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._fs = store.root.fs
        self._known = {
            _name(manifest, table): (store.root.table(manifest, table), file.size_bytes)
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


def _write_views(connection: duckdb.DuckDBPyConnection, database: str, store: Store, with_copies: bool) -> None:
    """Write the tables of an index: a copy or a view if any log has rows, else an empty table.

    Tables with little data are copied if `with_copies` is true.
    """
    connection.execute(f"USE {database}; BEGIN; {SCHEMA}; COMMIT")
    for table in TABLES:
        files = {_name(one, table): one.tables[table].size_bytes for one in store.manifests if table in one.tables}
        if files:
            names = ", ".join(f"'{PROTOCOL}://{name}'" for name in files)
            query = _query(table, f"read_parquet([{names}], hive_partitioning = false)")
            is_copied = with_copies and sum(files.values()) <= max(_MOST_COPIED_BYTES, _COPIED_BYTES_EACH * len(files))
            _write_table(connection, table, query, is_copied)
    connection.execute("USE memory")


def _write_table(connection: duckdb.DuckDBPyConnection, table: str, query: str, is_copied: bool) -> None:
    connection.execute(f"DROP TABLE {table}")
    if is_copied:
        try:
            connection.execute(f"CREATE TABLE {table} AS {query}")
            return
        except duckdb.Error:  # a damaged file is reported by the parts that need it
            pass
    connection.execute(f"CREATE VIEW {table} AS {query}")


def _query(table: str, files: str) -> str:
    """Return the query of a table: the rows of all logs, in `meta` the sums of its counts."""
    if table != "meta":
        return f"SELECT * FROM {files}"
    return f"SELECT key, sum(CAST(value AS BIGINT))::VARCHAR AS value FROM {files} WHERE key <> 'key' GROUP BY key"


def _name(manifest: Manifest, table: str) -> str:
    return f"{manifest.number}/{table}.parquet"


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
