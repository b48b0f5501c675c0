"""Runs a statement on the index of a trace, always with bound parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from stepscope.viewer.store.trace import Trace

Row = tuple[Any, ...]


def rows(trace: Trace, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
    return trace.cursor().execute(statement, parameters).fetchall()


def rows_named(trace: Trace, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
    """Like `rows`, for a statement whose parameters have names."""
    return trace.cursor().execute(statement, parameters).fetchall()


def row(trace: Trace, statement: str, parameters: Sequence[Any] = ()) -> Row | None:
    return trace.cursor().execute(statement, parameters).fetchone()


def number(trace: Trace, statement: str, parameters: Sequence[Any] = ()) -> Any:
    """The first column of the only row."""
    found = row(trace, statement, parameters)
    return found[0] if found else None


def json_value(text: str | None) -> Any:
    """What a JSON column of the index holds; None for NULL."""
    return None if text is None else orjson.loads(text)
