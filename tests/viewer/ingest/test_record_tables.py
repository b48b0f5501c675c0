"""A record that names a table becomes a row of it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import duckdb

from stepscope.tracer.schema.process_ends import Frame, UncaughtException
from stepscope.tracer.schema.records import RECORD_TYPES
from stepscope.viewer.store import sql
from stepscope.viewer.store.index import SCHEMA
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import recorded


def test_each_field_has_a_column() -> None:
    kinds = [kind for kind in RECORD_TYPES if kind.TABLE is not None]
    assert UncaughtException in kinds
    with duckdb.connect() as index:
        index.execute(SCHEMA)
        for kind in kinds:
            columns = [name for name, *_ in index.execute(f"DESCRIBE {kind.TABLE}").fetchall()]
            assert columns == ["log", "time_unix_ns", *(field.name for field in fields(kind))]


def test_lists_are_json(tmp_path: Path) -> None:
    frame = Frame("/src/model.py", 7, "forward", "x + 1")
    path = recorded(end=False).record(UncaughtException("ValueError", "no", [frame])).write(tmp_path / "a.log")
    with open_trace(path) as trace:
        ((kind, text, frames),) = sql.rows(trace, "SELECT type, text, frames FROM uncaught_exceptions")
    assert (kind, text) == ("ValueError", "no")
    assert json.loads(frames) == [{"file": "/src/model.py", "line": 7, "function": "forward", "code": "x + 1"}]
