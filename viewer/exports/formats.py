"""The formats of `stepscope export`, whose modules are imported on demand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STDOUT = Path("-")
MOST_PAGES = 500


@dataclass(frozen=True)
class Format:
    name: str
    module: str
    """Module of this package whose `export(trace, wanted)` writes the file and returns a count."""
    file_name: str
    """Default name of the file, in which {table} is replaced by the name of the table."""
    counted: str
    """Unit of the count that `export` returns, in the singular."""
    explanation: str
    """Description in `--help`."""
    is_binary: bool = False
    """Whether its bytes must not be shown in a terminal."""
    needs_file: bool = False
    """Whether it cannot be written to standard output."""
    written: str = "file"
    """What it writes."""


FORMATS = (
    Format("csv", "table_files", "{table}.csv", "row", "a table", is_binary=True),
    Format("parquet", "table_files", "{table}.parquet", "row", "a table", is_binary=True),
    Format(
        "memory_snapshot",
        "memory_snapshot",
        "memory_snapshot.pickle",
        "storage",
        "allocations and frees of storages for pytorch.org/memory_viz",
        needs_file=True,
    ),
    Format(
        "chrome",
        "chrome_trace",
        "trace.json",
        "event",
        "compiles, steps, calls, launches, device work and live bytes for Perfetto and Holistic Trace Analysis",
    ),
    Format("sarif", "sarif", "findings.sarif", "finding", "findings in SARIF 2.1.0 for code hosts"),
    Format(
        "html",
        "html.folder",
        "stepscope_pages",
        "page",
        "a folder of pages for any web server that hosts files",
        needs_file=True,
        written="folder",
    ),
    Format("raw", "raw_payload", "-", "byte", "the payload of a record", is_binary=True),
)


@dataclass(frozen=True)
class WantedPages:
    """What a folder of pages contains, and who is told about it."""

    most: int = MOST_PAGES
    """Maximum number of pages, and of launches that they show."""
    source_link: str = ""
    """Template of the links to lines of model source, empty for no links."""
    say: Callable[[str], None] = lambda _: None
    """Told what is being done, for a command that shows its progress."""
    remark: Callable[[str], None] = lambda _: None
    """Told a sentence about what was left out."""


@dataclass(frozen=True)
class Wanted:
    """The request of an export: what to write, and where."""

    format: str
    path: Path
    table: str
    record: int | None = None
    part: str | None = None
    """Range of bytes of a payload, in the syntax of `byte_range`."""
    pages: WantedPages = WantedPages()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the file for writing, or standard output."""
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with path.open("wb") as file:
        yield file
