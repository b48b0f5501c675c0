"""Reads one log into its own Parquet files in a STORE. Workers are independent of each other.

The manifest is written last, and files without a manifest do not count, because a worker may die at any point.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import LogFile, head_of, plain_source
from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.recorder.run_facts import NewerFormat
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.ingest.unpack import is_packed
from stepscope.viewer.ingest.watch import unwatched
from stepscope.viewer.store.distributed_ingest.parent_strings import StringsBeside
from stepscope.viewer.store.index import build_in_memory, build_index, index_key
from stepscope.viewer.store.isolated_connection import SMALL_BYTES, connect
from stepscope.viewer.store.parquet.files import put_whole, write_tables
from stepscope.viewer.store.parquet.layout import ID_BITS, Manifest, Root, TableFile, read_manifest, write_manifest


@dataclass(frozen=True)
class Task:
    """A log to read, and the STORE that takes its tables."""

    store: str
    number: int
    log: LogFile
    key: str
    """The version of the code that created the task."""


@dataclass(frozen=True)
class Done:
    """A log whose tables are complete."""

    number: int
    log_bytes: int
    """Size of the file as it is stored, compressed or not."""
    parquet_bytes: int
    earlier_tries: int
    """The number of earlier tries that were never finished."""
    left_out: str | None = None
    """The reason why the log was not read: its format is newer, which its tables record."""


def ingest_log(task: Task) -> Done:
    """Read the log, write its tables, and remove the files of earlier tries.

    Raises StepscopeError if this version of stepscope differs from the one that created the task, and OSError if the
    STORE cannot be written or does not return what was written.
    """
    if index_key(()) != task.key:
        raise StepscopeError(
            "A worker has another version of stepscope or DuckDB. Install the same versions everywhere."
        )
    root, folder = Root(task.store), secrets.token_hex(4)
    before, old = read_manifest(root, task.number), root.tries(task.number)
    root.begin(task.number, folder)
    with unwatched(), plain_source(task.log.address) as source:
        left_out: list[NewerFormat] = []
        tables = _write_tables(root, task, folder, source, left_out)
        was_read = not left_out and not any(reason == "not_read" for reason, _ in source.problems)
        packed = was_read and is_packed(head_of(task.log.address))
        write_manifest(root, Manifest(task.number, task.log, task.key, folder, tables, source.size, packed, was_read))
    root.remove_tries(task.number, old)
    finished = {before.folder} if before else set()
    return Done(
        task.number,
        task.log.size_bytes,
        sum(table.size_bytes for table in tables.values()),
        len(set(old) - finished),
        left_out[0].reason if left_out else None,
    )


def _write_tables(
    root: Root, task: Task, folder: str, source: Source, left_out: list[NewerFormat]
) -> dict[str, TableFile]:
    relatives, first_id = StringsBeside(task.log.address), task.number << ID_BITS
    rows = read_logs([source], first_log=task.number, first_id=first_id, relatives=relatives.tables, left_out=left_out)
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch:
        with _index(Path(scratch, "index"), task.key, rows, source.size) as connection:
            files = write_tables(connection, Path(scratch), task.log.address)
        for table, file in files.items():
            put_whole(
                root.fs,
                Path(scratch, f"{table}.parquet"),
                f"{root.log_folder(task.number)}/{folder}/{table}.parquet",
                file,
            )
    return files


@contextmanager
def _index(path: Path, key: str, rows: IndexRows, log_bytes: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection to the index of one log. That of a small log stays in memory, because a file of it takes
    longer to write than to read the log. Raises OSError if there is no room for a file."""
    if log_bytes < SMALL_BYTES:
        with closing(build_in_memory(key, rows, log_bytes)) as connection:
            yield connection
        return
    built = build_index(path, key, rows, log_bytes)
    if built is None:
        raise OSError(f"there is no room for an index in {path.parent}")
    built.close()  # it cannot write files
    with closing(connect(path)) as connection:
        yield connection
