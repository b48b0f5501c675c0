"""The formats of `stepscope export`: one line for each; its module is imported when the format is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STDOUT = Path("-")


@dataclass(frozen=True)
class Format:
    name: str
    module: str
    """The module of this package with `export(trace, wanted)`, which writes the file and counts what is in it."""
    file_name: str
    """The name of the file where none is given; {table} stands for the name of the table."""
    counted: str
    """What `export` counts."""
    explanation: str
    """What `--help` says of it."""
    is_binary: bool = False
    """Its bytes are not shown in a terminal."""
    needs_file: bool = False
    """It cannot be written to standard output."""


FORMATS = (
    Format("csv", "table_files", "{table}.csv", "rows", "a table", is_binary=True),
    Format("parquet", "table_files", "{table}.parquet", "rows", "a table", is_binary=True),
    Format(
        "memory_snapshot",
        "memory_snapshot",
        "memory_snapshot.pickle",
        "storages",
        "births and deaths of storages for pytorch.org/memory_viz",
        needs_file=True,
    ),
    Format(
        "chrome",
        "chrome_trace",
        "trace.json",
        "events",
        "compiles, steps, calls, launches and live bytes for Perfetto",
    ),
    Format("raw", "raw_payload", "-", "bytes", "the payload of a record", is_binary=True),
)


@dataclass(frozen=True)
class Wanted:
    """What is to be written, and where to."""

    format: str
    path: Path
    table: str
    record: int | None = None
    part: str | None = None
    """A range of bytes of a payload, as `byte_range` takes it."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, or standard output."""
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with path.open("wb") as file:
        yield file
