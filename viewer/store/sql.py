"""Runs statements on the index of a trace, always with bound parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import orjson

from stepscope.viewer.store.trace import Trace

if TYPE_CHECKING:
    import numpy.typing as npt

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any]
T = TypeVar("T")


def records(row_class: type[T], trace: Trace, statement: str, parameters: Parameters = ()) -> list[T]:
    """Return the rows of `statement` as instances of `row_class`, a dataclass or a NamedTuple. Columns match fields by
    name in any order; a field with a default needs no column. Raises TypeError if columns and fields do not match."""
    with trace.answered(statement, parameters) as cursor:
        return _built(row_class, cursor, cursor.fetchall())


def record(row_class: type[T], trace: Trace, statement: str, parameters: Parameters = ()) -> T | None:
    """Return the first row of `statement` like `records`, or None if it has no row."""
    with trace.answered(statement, parameters) as cursor:
        found = cursor.fetchone()
        return None if found is None else _built(row_class, cursor, [found])[0]


def named(trace: Trace, statement: str, parameters: Parameters = (), json: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the rows of `statement` as dictionaries by column, with the JSON of the columns `json` decoded."""
    with trace.answered(statement, parameters) as cursor:
        columns = [column[0] for column in cursor.description or ()]
        found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    for row in found:
        row.update({name: json_value(row[name]) for name in json})
    return found


def rows(trace: Trace, statement: str, parameters: Parameters = ()) -> list[Row]:
    with trace.answered(statement, parameters) as cursor:
        return cursor.fetchall()


def row(trace: Trace, statement: str, parameters: Sequence[Any] = ()) -> Row | None:
    with trace.answered(statement, parameters) as cursor:
        return cursor.fetchone()


def columns(trace: Trace, statement: str, parameters: Parameters = ()) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of `statement`, which must not be NULL, as arrays of numpy."""
    with trace.answered(statement, parameters) as cursor:
        return cursor.fetchnumpy()


def order_by(orders: Mapping[str, str], sort: str | None, is_down: bool, default: str) -> str:
    """Return what follows ORDER BY: the expression of `sort`, unknown values last, then the default order."""
    return default if sort is None else f"{orders[sort]} {'DESC' if is_down else 'ASC'} NULLS LAST, {default}"


def number(trace: Trace, statement: str, parameters: Sequence[Any] = ()) -> Any:
    """Return the first column of the first row, or None."""
    found = row(trace, statement, parameters)
    return found[0] if found else None


def has_rows(trace: Trace, table: str) -> bool:
    """Return whether a table of the index has rows, which is asked once."""
    return trace.once(_has_rows, table)


def _has_rows(trace: Trace, table: str) -> bool:
    return row(trace, f"SELECT 1 FROM {table} LIMIT 1") is not None


def json_value(text: str | None) -> Any:
    """Return the value of a JSON column of the index; None if it is NULL."""
    return None if text is None else orjson.loads(text)


def _built(row_class: type[T], cursor: duckdb.DuckDBPyConnection, found: Sequence[Row]) -> list[T]:
    columns = tuple(column[0] for column in cursor.description or ())
    if columns == _checked(row_class, columns):  # type: ignore[arg-type]  # a class is hashable
        return [row_class(*row) for row in found]
    return [row_class(**dict(zip(columns, row, strict=True))) for row in found]


@lru_cache(maxsize=1024)
def _checked(row_class: type[Any], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the fields in order after checking that the columns match them."""
    fields = signature(row_class).parameters
    missing = [name for name, field in fields.items() if field.default is Parameter.empty and name not in columns]
    extra = [name for name in columns if name not in fields]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if missing or extra or twice:
        raise TypeError(
            f"The columns of the statement do not fit {row_class.__name__}: "
            f"fields without a column: {', '.join(missing) or 'none'}; "
            f"columns without a field: {', '.join(extra) or 'none'}; columns named twice: {', '.join(twice) or 'none'}."
        )
    return tuple(fields)
