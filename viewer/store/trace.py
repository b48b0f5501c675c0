"""Defines an open trace: the connection to its index, and the headers and payloads in its logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import duckdb

from stepscope.tracer.schema.log_format import decode_payload, decode_payload_crlf
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.store.isolated_connection import NAME, connect
from stepscope.viewer.store.kept import Together

T = TypeVar("T")
IN_MEMORY = Path(":memory:")
MOST_PARSED = 1_000
"""Number of statements that an open trace keeps parsed."""
PAYLOAD, _HEADER = "payload_byte AS start, payload_bytes AS length", "byte AS start, header_bytes AS length"


class Closeable(Protocol):
    def close(self) -> object: ...


class LogRange(NamedTuple):
    """Position of a header or of a payload in its log."""

    record: int
    log: int
    start: int
    length: int
    crlf: bool


class Trace:
    """An open trace: its logs and its index. Close it, or use it as a context manager."""

    def __init__(
        self,
        sources: Sequence[Source],
        connection: duckdb.DuckDBPyConnection,
        index: Path,
        held: Sequence[Closeable] = (),
    ) -> None:
        """`held` is closed with the trace: a file that protects the index from removal, or a temporary folder."""
        self.logs = list(sources)
        self.index = index
        self._connection = connection
        self._held = held
        self._lock = threading.Lock()
        self._idle: list[duckdb.DuckDBPyConnection] = []
        self._parsed: dict[str, duckdb.Statement] = {}
        self._files: dict[int, BinaryIO] = {}
        self._together: Together[Any] = Together()
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
        """Files that must not be overwritten: the index and the logs."""
        return [self.index, *(file for log in self.logs for file in (log.path, log.data_path))]

    @property
    def notices(self) -> list[str]:
        """Sentences about the missing parts of the trace."""
        return []

    def unlocked(self) -> duckdb.DuckDBPyConnection:
        """Return another connection, which can write files and therefore must not run statements of the user."""
        if self.index == IN_MEMORY:
            return self.cursor()
        return connect(self.index)

    @property
    def connect_apart(self) -> Callable[[], duckdb.DuckDBPyConnection] | None:
        """Function that connects to the index and can be sent to another process; None if the index is in memory."""
        return None if self.index == IN_MEMORY else partial(connect, self.index)

    @property
    def is_one_file(self) -> bool:
        """Whether a connection to the index needs no other file."""
        return True

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a new connection for one thread, which can read only the index."""
        with self._lock:
            cursor = self._connection.cursor()
        cursor.execute(f"USE {NAME}")
        return cursor

    @contextmanager
    def answered(
        self, statement: str, parameters: Sequence[Any] | Mapping[str, Any]
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a connection with the result of a statement, which must be fetched before it is given back. To connect
        and to parse the statement again would take longer than most statements run."""
        try:
            cursor = self._idle.pop()
        except IndexError:
            cursor = self.cursor()
        parsed = self._parsed.get(statement)
        if parsed is None:
            (parsed,) = cursor.extract_statements(statement)
            if len(self._parsed) >= MOST_PARSED:
                self._parsed.clear()
            self._parsed[statement] = parsed
        yield cursor.execute(parsed, parameters)
        self._idle.append(cursor)

    def once(self, ask: Callable[..., T], *about: Hashable, most: int | None = None) -> T:
        """Return the cached result of `ask(self, *about)`, which must not be modified. At most `most` results are kept.
        Threads that ask for the same result at the same time compute it once."""
        known: dict[tuple[Hashable, ...], T] = self._answers.setdefault(ask, {})
        try:
            return known[about]
        except KeyError:
            pass

        def keep(answer: T) -> None:
            if most is not None and len(known) >= most:
                known.pop(next(iter(known)), None)
            known[about] = answer

        found: T = self._together.get((ask, about), lambda: known[about], lambda: ask(self, *about), keep)
        return found

    def header(self, record: int) -> bytes:
        """Return the header line of `record` including its prefix, or b"" if there is no such record."""
        return next(iter(self.headers([record]).values()), b"")

    def payload(self, record: int) -> bytes:
        """Return the payload of `record` as the program wrote it, or b"" if there is none."""
        return next(iter(self.payloads([record]).values()), b"")

    def whole_payload(self, record: int) -> bytes:
        """Return the payload like `payload`, but raise StepscopeError if it exists and cannot be read."""
        return self.payload(record)

    def payloads(self, records: Sequence[int]) -> dict[int, bytes]:
        """Return the payloads of those records that have one."""
        found = self._ranges(records, PAYLOAD)
        return {
            one.record: (decode_payload_crlf if one.crlf else decode_payload)(
                self.log_bytes(one.log, one.start, one.length)
            )
            for one in found
        }

    def headers(self, records: Sequence[int]) -> dict[int, bytes]:
        """Return the header lines of several records."""
        found = self._ranges(records, _HEADER)
        return {one.record: self.log_bytes(one.log, one.start, one.length) for one in found}

    def _ranges(self, records: Sequence[int], columns: str) -> list[LogRange]:
        """Return the positions of the headers of `records`, or of those payloads that exist."""
        one = len(records) == 1  # the usual case, which needs no sort and no join
        wanted = "record = $1" if one else "record IN (SELECT unnest($1)) ORDER BY record"
        statement = f"SELECT record, log, {columns}, crlf FROM records WHERE {wanted}"
        with self.answered(statement, [records[0] if one else list(records)]) as cursor:
            names = [column[0] for column in cursor.description]
            found = [LogRange(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]
        return [one for one in found if one.length is not None]

    def log_bytes(self, log: int, start: int, length: int) -> bytes:
        """Return uncompressed bytes of a log, fewer than `length` at its end."""
        with self._lock:
            if log not in self._files:
                self._files[log] = self._open_log(log)
            file = self._files[log]
            file.seek(start)
            return file.read(length)

    def _open_log(self, log: int) -> BinaryIO:
        """Open the uncompressed log."""
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
            for cursor in (*self._idle, self._connection):
                cursor.close()
            for file in self._files.values():
                file.close()
            self._files.clear()
        for held in self._held:
            held.close()
