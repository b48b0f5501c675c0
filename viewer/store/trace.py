"""Open a trace: find its index, or build it, and read headers and payloads out of the logs."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, TypeVar

import duckdb

from stepscope.tracer.schema.log_format import decode_payload, decode_payload_crlf
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.rows import Rows, without_collection
from stepscope.viewer.ingest.sources import Source, TracePath, find_logs, trace_names
from stepscope.viewer.store.apart import NAME, connect
from stepscope.viewer.store.cache_folder import hold, index_name, indexes_folder, make_room, most_bytes
from stepscope.viewer.store.index import OpenIndex, build_in_memory, build_index, index_key, open_index
from stepscope.viewer.store.parquet.mark import means_store

T = TypeVar("T")
IN_MEMORY = Path(":memory:")
_SHARED_MEMORY = "/dev/shm"


class _Held(Protocol):
    def close(self) -> object: ...


class Trace:
    """An open trace: its logs and its index. Close it, or use it as a context manager."""

    def __init__(
        self, sources: Sequence[Source], connection: duckdb.DuckDBPyConnection, index: Path, held: Sequence[_Held] = ()
    ) -> None:
        """`held` is closed with the trace: what keeps the index from being removed, a folder that goes with it."""
        self.logs = list(sources)
        self.index = index
        self._connection = connection
        self._held = held
        self._lock = threading.Lock()
        self._files: dict[int, BinaryIO] = {}
        self._answers: dict[Callable[..., Any], dict[tuple[Hashable, ...], Any]] = {}

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

    @property
    def own_files(self) -> list[Path]:
        """What must not be written over: the index, and the logs."""
        return [self.index, *(file for log in self.logs for file in (log.path, log.data_path))]

    @property
    def notices(self) -> list[str]:
        """What is missing of the trace itself, each in a sentence."""
        return []

    def unlocked(self) -> duckdb.DuckDBPyConnection:
        """Another connection, which reads the index and may write files: for no statement of the user's."""
        if self.index == IN_MEMORY:
            return self.cursor()
        return connect(self.index)

    @property
    def connect_apart(self) -> Callable[[], duckdb.DuckDBPyConnection] | None:
        """Makes a connection like `unlocked` in another process, to which it can be sent; None for an index in memory,
        which no other process reaches."""
        return None if self.index == IN_MEMORY else partial(connect, self.index)

    @property
    def is_one_file(self) -> bool:
        """Whoever is connected to the index needs to open no other file."""
        return True

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the index, for one thread; it can read the index and nothing else."""
        with self._lock:
            cursor = self._connection.cursor()
        cursor.execute(f"USE {NAME}")
        return cursor

    def once(self, ask: Callable[..., T], *about: Hashable, most: int | None = None) -> T:
        """What `ask(self, *about)` answers, which does not change; it is asked the first time. The last `most` answers
        stay. Several threads may ask at once: each gets a whole answer. Not to be changed."""
        known: dict[tuple[Hashable, ...], T] = self._answers.setdefault(ask, {})
        try:
            return known[about]
        except KeyError:
            answer = ask(self, *about)
            if most is not None and len(known) >= most:
                known.pop(next(iter(known)), None)
            known[about] = answer
            return answer

    def header(self, record: int) -> bytes:
        """The header line of `record`, its prefix included; empty when there is no such record."""
        found = self._place(record, "byte, header_bytes")
        return self.log_bytes(*found[:3]) if found else b""

    def payload(self, record: int) -> bytes:
        """The payload of `record` as the program wrote it; empty when there is none."""
        found = self._place(record, "payload_byte, payload_bytes")
        if found is None or found[1] is None:
            return b""
        return (decode_payload_crlf if found[3] else decode_payload)(self.log_bytes(*found[:3]))

    def whole_payload(self, record: int) -> bytes:
        """Like `payload`. Raises StepscopeError where there is one and it cannot be read."""
        return self.payload(record)

    def payloads(self, records: Sequence[int]) -> dict[int, bytes]:
        """The payloads of several records, of those that have one."""
        return self._several(records, "payload_byte, payload_bytes", decode_payload, decode_payload_crlf)

    def headers(self, records: Sequence[int]) -> dict[int, bytes]:
        """The header lines of several records."""
        return self._several(records, "byte, header_bytes", bytes, bytes)

    def _several(
        self, records: Sequence[int], columns: str, plain: Callable[[bytes], bytes], crlf: Callable[[bytes], bytes]
    ) -> dict[int, bytes]:
        places = self.cursor().execute(
            f"SELECT record, log, {columns}, crlf FROM records WHERE record IN (SELECT unnest($1)) ORDER BY record",
            [list(records)],
        )
        return {
            record: (crlf if is_crlf else plain)(self.log_bytes(log, start, length))
            for record, log, start, length, is_crlf in places.fetchall()
            if length is not None
        }

    def _place(self, record: int, columns: str) -> tuple[int, int, int, bool] | None:
        return self.cursor().execute(f"SELECT log, {columns}, crlf FROM records WHERE record = ?", [record]).fetchone()

    def log_bytes(self, log: int, start: int, length: int) -> bytes:
        """Bytes of a log as they stand in it, its packing taken off; fewer where it ends."""
        with self._lock:
            if log not in self._files:
                self._files[log] = self._open_log(log)
            file = self._files[log]
            file.seek(start)
            return file.read(length)

    def _open_log(self, log: int) -> BinaryIO:
        """A log without its packing."""
        try:
            return self.logs[log].data_path.open("rb")
        except OSError as error:
            raise StepscopeError(
                f"{self.logs[log].path} cannot be read any more ({error.strerror or error}): headers and payloads are"
                " in the log only, not in its index."
            ) from None

    def close(self) -> None:
        """Release the index and the logs. The trace cannot be used afterwards."""
        with self._lock:
            self._connection.close()
            for file in self._files.values():
                file.close()
            self._files.clear()
        for held in self._held:
            held.close()


def open_trace(path: TracePath, *, index_dir: str | os.PathLike[str] | None = None) -> Trace:
    """Open the trace at `path`: a log, a `.gz` or `.zst` of one, a folder of logs, `-` for standard input, several of
    these, or a STORE.

    The index lies in `index_dir`, or in the user's cache folder, never beside a log; where neither can be written it
    lies in a temporary folder, and at last in memory. One that is there and current is used, any other is built.
    Raises StepscopeError when there is no log, or one of a newer format.
    """
    if means_store(trace_names(path)):
        from stepscope.viewer.store.parquet.views import open_store  # needs fsspec, which takes time to import

        return open_store(trace_names(path)[0])
    return open_logs(path, find_logs(path), index_dir=index_dir)


def open_logs(path: TracePath, sources: Sequence[Source], *, index_dir: str | os.PathLike[str] | None = None) -> Trace:
    """Like `open_trace`, for the logs of `path` that were found already; each is read up to its `size`."""
    return _Opening(sources, trace_names(path)).open(index_dir)


class _Opening:
    """Looks for the place of an index, best first; the logs are read at most once."""

    def __init__(self, sources: Sequence[Source], names: Sequence[str]) -> None:
        self._sources, self._key = sources, index_key(sources)
        self._name = index_name(names, self._key)
        self._rows: Rows | None = None

    def open(self, index_dir: str | os.PathLike[str] | None) -> Trace:
        with without_collection():
            return self._in_folder(index_dir) or self._in_temporary_folder() or self._in_memory()

    def _in_folder(self, index_dir: str | os.PathLike[str] | None) -> Trace | None:
        """In the folder that was asked for, or in the user's cache folder."""
        if index_dir is None:
            most_bytes()  # a bound that is none is told before the logs are read, and each time
        try:
            index = (Path(index_dir).absolute() if index_dir is not None else indexes_folder()) / self._name
        except (OSError, StepscopeError):
            return None
        found = open_index(index, self._key) if _is_text(index) else None
        if found is None and (found := self._build(index)) is not None and index_dir is None:
            make_room(index)
        return None if found is None else self._trace(found, index)

    def _in_temporary_folder(self) -> Trace | None:
        for folder in _temporary_folders():
            index = Path(folder.name, self._name)
            found = self._build(index)
            if found is not None:
                return self._trace(found, index, folder)
            folder.cleanup()
        return None

    def _in_memory(self) -> Trace:
        return Trace(self._sources, build_in_memory(self._key, self._read()), IN_MEMORY, self._spools())

    def _build(self, index: Path) -> OpenIndex | None:
        if not _is_text(index):
            return None
        return build_index(index, self._key, self._read(), sum(source.size for source in self._sources))

    def _read(self) -> Rows:
        if self._rows is None:
            from stepscope.viewer.ingest import logs  # not needed to open an index that is there

            self._rows = logs.read_logs(self._sources)
        return self._rows

    def _trace(self, found: OpenIndex, index: Path, *held: _Held) -> Trace:
        self._rows = None  # gone before the next collection
        kept = [found.held] if found.held is not None else []
        return Trace(self._sources, found.connection, index, [*kept, *self._spools(), *held])

    def _spools(self) -> list[BinaryIO]:
        """The unpacked logs, which payloads are read from while the trace is open."""
        unpacked = {source.data_path for source in self._sources if source.data_path != source.path}
        return [held for path in unpacked if (held := hold(path)) is not None]


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    def close(self) -> None:
        self.cleanup()


def temporary_folder() -> TemporaryFolder | None:
    """A private folder that goes away when it is closed; None where none can be made."""
    return next(_temporary_folders(), None)


def _temporary_folders() -> Iterator[TemporaryFolder]:
    for place in (tempfile.gettempdir, lambda: _SHARED_MEMORY):
        try:
            folder = TemporaryFolder(dir=place(), prefix="stepscope-", ignore_cleanup_errors=True)
        except OSError:
            continue
        yield folder


def _is_text(path: Path) -> bool:
    """DuckDB opens no file whose name is not UTF-8."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False
