"""The spreads of the arguments of a kernel are those that DuckDB finds in the index."""

from __future__ import annotations

from pathlib import Path

import duckdb

from stepscope.tracer.schema.statistics import NONFINITE, STATISTICS
from stepscope.viewer.store import isolated_connection, sql
from stepscope.viewer.store.trace import IN_MEMORY, Trace
from stepscope.viewer.values.queries.spreads import argument_spreads
from stepscope.viewer.values.queries.values import HEALTH_INDEX, health_of

SCHEMA = Path(isolated_connection.__file__).with_name("schema.sql").read_text("utf-8")
ROWS = """
    INSERT INTO value_rows BY NAME
    SELECT range AS value, 0 AS log, range AS launch, range // 40 AS step, range % 5 AS site, range % 3 AS argument,
           CASE WHEN range % 4 = 0 THEN NULL ELSE range % 2 END AS item,
           [NULL, 'real', 'imag'][1 + (range * 7) % 3] AS part, ['before', 'after'][1 + (range // 5) % 2] AS moment,
           64 AS numel, 64 AS looked_at, range % 9 = 0 AS at_least, hash(range) % 3 AS nan,
           CASE WHEN range % 2 = 0 THEN 5 END AS positive_infinity, 0 AS negative_infinity, 0 AS near_overflow,
           0 AS subnormal, CASE WHEN range % 5 <> 1 THEN hash(range + 1) % 7 END AS zero,
           CASE WHEN range % 10 <> 3 THEN (hash(range + 2) % 11) / 10 END AS mean, -1.5 AS min,
           (hash(range + 3) % 1000) / 8 AS max, CASE WHEN range % 5 = 2 THEN range / 3 END AS l2
    FROM range(3000)
"""
GROUP = "v.log, v.site, v.argument, v.item, v.part, v.moment"


def expected(trace: Trace, name: str) -> dict[tuple[object, ...], tuple[object, ...]]:
    shown = f"CASE WHEN NOT coalesce(v.at_least, false) THEN v.{name} END" if name in NONFINITE else f"v.{name}"
    found = sql.rows(
        trace,
        f"SELECT {GROUP}, count(*), {health_of(f'min({HEALTH_INDEX})')}, min({shown}), max({shown}),"
        f" count(DISTINCT {shown}) FROM value_rows v WHERE v.site IN (1, 2, 4) GROUP BY ALL",
    )
    return {row[:8]: row[8:] for row in found}


def test_spreads_are_those_of_the_index() -> None:
    with duckdb.connect() as index:
        index.execute(f"ATTACH ':memory:' AS {isolated_connection.NAME}; USE {isolated_connection.NAME}; {SCHEMA}")
        index.execute(ROWS)
        trace = Trace([], index, IN_MEMORY)
        found = argument_spreads(trace, [1, 2, 4])
        for name in ("numel", *STATISTICS):
            spreads = {
                row[:-1]: next(((one.low, one.high, one.values) for one in row.spreads if one.name == name), None)
                for row in found
            }
            known = {key: spread if spread[2] else None for key, spread in expected(trace, name).items()}
            assert spreads == known, name
        assert argument_spreads(trace, [99]) == []
