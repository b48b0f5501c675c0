"""The meaning of the tables and columns of the index, from `meanings.txt` and the comments of `schema.sql`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_TABLE = re.compile(r"CREATE TABLE (\w+) \(((?:(?!\);).)*)\n\);", re.DOTALL)
_COMMENTED = re.compile(r"^\s*(\w+) [A-Z]+,?\s+-- (.*(?:\n\s+-- .*)*)", re.MULTILINE)


@cache
def meanings() -> dict[str, str]:
    """Return sentences by name: `launches` for a table, `launches.step` for a column."""
    tables, columns = _sections((_HERE / "meanings.txt").read_text("utf-8"))
    found = {name: text for name, text in columns.items() if "." in name}
    schema = (_HERE / "schema.sql").read_text("utf-8")
    for table, body in _TABLE.findall(schema):
        for column, text in _COMMENTED.findall(body):
            found.setdefault(f"{table}.{column}", _sentence(re.sub(r"\n\s+-- ", " ", text)))
    return {**columns, **found, **{f"{table}.": text for table, text in tables.items()}}


def meaning_of(table: str, column: str | None = None) -> str | None:
    """Return the meaning of a table, or of one of its columns; None if there is none."""
    known = meanings()
    return known.get(f"{table}.") if column is None else known.get(f"{table}.{column}") or known.get(column)


def _sections(text: str) -> tuple[dict[str, str], dict[str, str]]:
    found: dict[str, dict[str, str]] = {"tables": {}, "columns": {}}
    section: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = found[line.strip("[]")]
        elif line and not line.startswith("#"):
            name, _, meaning = line.partition(": ")
            section[name] = meaning
    return found["tables"], found["columns"]


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
