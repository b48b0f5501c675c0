"""Writes the result of a statement as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from pathlib import Path

import duckdb

from stepscope.viewer.search.queries.tables import SqlAnswer
from stepscope.viewer.store.isolated_connection import NO_EXTENSIONS, quoted

_PLAIN_TYPE = re.compile(r"[A-Z0-9_]+(\(\d+,? ?\d*\))?(\[\])*")
"""Types that a text can be cast to; all others are written as text."""


def csv_file(answer: SqlAnswer) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def parquet_file(answer: SqlAnswer) -> bytes:
    """Return a file with the types of the result."""
    names = [f'"c{index}"' for index in range(len(answer.columns))]
    shown = [
        f"{_cast(name, kind)} AS {_identifier(column)}"
        for name, kind, column in zip(names, answer.types, _distinct(answer.columns), strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="stepscope-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "result.parquet")
        with duckdb.connect(":memory:", config=NO_EXTENSIONS) as connection:
            connection.execute(f"CREATE TABLE result ({', '.join(f'{name} VARCHAR' for name in names)})")
            if answer.rows:
                columns = [[None if row[i] is None else str(row[i]) for row in answer.rows] for i in range(len(names))]
                unnested = ", ".join(f"unnest(${i}::VARCHAR[])" for i in range(1, len(names) + 1))
                connection.execute(f"INSERT INTO result SELECT {unnested}", columns)
            connection.execute(f"COPY (SELECT {', '.join(shown)} FROM result) TO {quoted(path)} (FORMAT parquet)")
        return path.read_bytes()


def _cast(name: str, kind: str) -> str:
    return f"TRY_CAST({name} AS {kind})" if _PLAIN_TYPE.fullmatch(kind) and "ZONE" not in kind else name


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _distinct(names: list[str]) -> list[str]:
    """Return the names with numbers behind those that repeat; a Parquet file needs different ones."""
    seen: set[str] = set()
    found = []
    for name in names:
        shown, number = name, 2
        while shown.lower() in seen:
            shown, number = f"{name}_{number}", number + 1
        seen.add(shown.lower())
        found.append(shown)
    return found
