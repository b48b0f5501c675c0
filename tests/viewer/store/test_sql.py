"""Rows of a statement become records by the names of their columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pytest

from stepscope.viewer.store import sql
from stepscope.viewer.store.isolated_connection import SMALL_BYTES, config
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, recorded


class Pair(NamedTuple):
    name: str
    size: int
    note: str = "none"


@dataclass(frozen=True, slots=True)
class Size:
    size: int


@pytest.fixture
def trace(opened: Callable[[LogBuilder | bytes], Trace]) -> Trace:
    return opened(recorded())


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'a' AS name, 3 AS size, 'x' AS note",
        "SELECT 'x' AS note, 3 AS size, 'a' AS name",
    ],
)
def test_columns_meet_fields_by_name(trace: Trace, statement: str) -> None:
    assert sql.records(Pair, trace, statement) == [Pair("a", 3, "x")]


def test_a_field_with_a_default_needs_no_column(trace: Trace) -> None:
    assert sql.records(Pair, trace, "SELECT 3 AS size, 'a' AS name") == [Pair("a", 3, "none")]


@pytest.mark.parametrize(("statement", "parameters"), [("SELECT ? AS size", [4]), ("SELECT $n AS size", {"n": 4})])
def test_parameters_go_by_position_or_by_name(trace: Trace, statement: str, parameters: Any) -> None:
    assert sql.records(Size, trace, statement, parameters) == [Size(4)]


def test_no_row_makes_no_record(trace: Trace) -> None:
    statement = "SELECT 4 AS size WHERE false"
    assert sql.records(Size, trace, statement) == []
    assert sql.record(Size, trace, statement) is None


def test_one_row_makes_one_record(trace: Trace) -> None:
    assert sql.record(Size, trace, "SELECT 4 AS size") == Size(4)


def test_rows_become_dictionaries_with_their_json_decoded(trace: Trace) -> None:
    found = sql.named(trace, "SELECT 'a' AS name, $size AS size, '[1, 2]' AS items", {"size": 4}, json=("items",))
    assert found == [{"name": "a", "size": 4, "items": [1, 2]}]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT 'a' AS name", "fields without a column: size"),
        ("SELECT 'a' AS name, 3 AS size, 1 AS other", "columns without a field: other"),
        ("SELECT 'a' AS name, 3 AS size, 4 AS size", "columns named twice: size"),
    ],
)
def test_columns_that_do_not_fit_are_named(trace: Trace, statement: str, said: str) -> None:
    with pytest.raises(TypeError, match=f"do not fit Pair: .*{said}"):
        sql.records(Pair, trace, statement)


def test_ranges_in_parameters_are_not_compared_with_all_rows_of_a_large_index() -> None:
    statement = (
        "EXPLAIN (FORMAT json) WITH ranges AS (SELECT unnest($1) AS first, unnest($2) AS last)"
        " SELECT n FROM launches JOIN ranges ON n < last AND n + 1 > first"
    )
    with duckdb.connect(config=config(SMALL_BYTES)) as connection:
        connection.execute("CREATE TABLE launches AS SELECT range AS n FROM range(10)")
        ((_, plan),) = connection.execute(statement, [[1, 3], [2, 4]]).fetchall()
    assert "IE_JOIN" in plan
