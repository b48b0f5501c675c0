"""Tables that a browser saves for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from stepscope.viewer.web.addresses import File


def csv_file(name: str, rows: Iterable[Sequence[Any]]) -> File:
    """Return a file of `rows`, of which the first has the names of the columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return File(out.getvalue().encode(), "text/csv", name)


def _cell(value: Any) -> str:
    """Return the cell's text, marked as text if a spreadsheet would take it for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str) and text[:1] in "=+-@\t\r" and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text[1:].replace(".", "", 1).isdecimal()
