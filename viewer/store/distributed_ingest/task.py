"""One log -> its own Parquet files in a STORE: what one worker does, which knows of no other.

What is written counts only when its manifest is there, and that is written last: a worker may die anywhere.
"""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import LogFile, head_of, plain_source
from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.recorder.run_facts import NewerFormat
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.ingest.unpack import is_packed
from stepscope.viewer.store.distributed_ingest.parent_strings import StringsBeside
from stepscope.viewer.store.index import build_index, index_key
from stepscope.viewer.store.parquet.files import put_whole, write_tables
from stepscope.viewer.store.parquet.layout import ID_BITS, Manifest, Root, TableFile, read_manifest, write_manifest


@dataclass(frozen=True)
class Unit:
    """A log to read, and where its tables go."""

    store: str
    number: int
    log: LogFile
    key: str
    """Of the code that asks for it."""


@dataclass(frozen=True)
class Done:
    """A unit that is whole."""

    number: int
    log_bytes: int
    """Of the file, packed or not."""
    parquet_bytes: int
    earlier_tries: int
    """Begun before, and never finished."""
    left_out: str | None = None
    """Why the log was not read: it is of a newer format, and its tables say so."""


def ingest_unit(unit: Unit) -> Done:
    """Read the log and write its tables; what earlier tries left is removed.

    Raises StepscopeError where this is another stepscope than the one that asks; OSError where the STORE cannot be
    written, or does not hold what was written.
    """
    if index_key(()) != unit.key:
        raise StepscopeError("A worker has another version of stepscope or DuckDB: install the same ones everywhere.")
    root, folder = Root(unit.store), secrets.token_hex(4)
    before, old = read_manifest(root, unit.number), root.tries(unit.number)
    root.begin(unit.number, folder)
    with plain_source(unit.log.address) as source:
        left_out: list[NewerFormat] = []
        tables = _write_tables(root, unit, folder, source, left_out)
        was_read = not left_out and not any(reason == "not_read" for reason, _ in source.problems)
        packed = was_read and is_packed(head_of(unit.log.address))
        write_manifest(root, Manifest(unit.number, unit.log, unit.key, folder, tables, source.size, packed, was_read))
    root.remove_tries(unit.number, old)
    finished = {before.folder} if before else set()
    return Done(
        unit.number,
        unit.log.size_bytes,
        sum(table.size_bytes for table in tables.values()),
        len(set(old) - finished),
        left_out[0].reason if left_out else None,
    )


def _write_tables(
    root: Root, unit: Unit, folder: str, source: Source, left_out: list[NewerFormat]
) -> dict[str, TableFile]:
    relatives, first_id = StringsBeside(unit.log.address), unit.number << ID_BITS
    rows = read_logs([source], first_log=unit.number, first_id=first_id, relatives=relatives.tables, left_out=left_out)
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch:
        index = Path(scratch, "index")
        built = build_index(index, unit.key, rows, source.size)
        if built is None:
            raise OSError(f"there is no room for an index in {scratch}")
        built.close()
        files = write_tables(index, Path(scratch), unit.log.address)
        for table, file in files.items():
            put_whole(
                root.fs, Path(scratch, f"{table}.parquet"), f"{root.unit(unit.number)}/{folder}/{table}.parquet", file
            )
    return files
