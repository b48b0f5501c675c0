"""Runs `stepscope export`: finds the format, refuses harmful outputs, and calls the module of the format."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.formats import FORMATS, STDOUT, Format, Wanted, WantedPages
from stepscope.viewer.search.queries.tables import list_tables
from stepscope.viewer.store.trace import Trace


def export(
    trace: Trace,
    form: str,
    table: str,
    out: Path | None,
    record: int | None = None,
    part: str | None = None,
    pages: WantedPages | None = None,
) -> tuple[Path, int]:
    """Write an export in the format `form`, and return its path and the number of rows, events, pages or the like.

    `part` is a range of bytes of the payload of `record`, in the syntax of `byte_range`. Raise StepscopeError if there
    is no such format, table or record, or if the file cannot be written.
    """
    found = next((one for one in FORMATS if one.name == form), None)
    if found is None:
        raise StepscopeError(f"--to {form} is not known; there are: {', '.join(one.name for one in FORMATS)}")
    path = out or Path(found.file_name.format(table=table))
    _refuse(trace, found, path)
    try:
        count = import_module(f"stepscope.viewer.exports.{found.module}").export(
            trace, Wanted(form, path, table, record, part, pages or WantedPages())
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StepscopeError(f"The {found.written} {path} cannot be written: {error.strerror or error}") from None
    return path, count


def filled_tables(trace: Trace) -> list[str]:
    """Return the tables that have rows in this trace."""
    return [row.name for row in list_tables(trace) if row.rows]


def _refuse(trace: Trace, form: Format, path: Path) -> None:
    """Refuse to overwrite the trace, and to write raw bytes to a terminal that may interpret them."""
    if path == STDOUT:
        if form.needs_file:
            raise StepscopeError(
                f"--to {form.name} writes a {form.written} and not to standard output: name one with -o."
            )
        if form.is_binary and sys.stdout.isatty():
            raise StepscopeError("Bytes are not shown in a terminal as they are: name a file with -o, or pipe them.")
        return
    if any(path.resolve() == file.resolve() for file in trace.own_files):
        raise StepscopeError(f"-o {path} is a file of the trace: give another name.")
