"""The heat map: its cells, how neighbours are joined where there are many, its windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import orjson
import pytest

from stepscope.viewer.store.isolated_connection import NAME
from stepscope.viewer.store.trace import IN_MEMORY, Trace
from stepscope.viewer.values.queries import heatmap
from stepscope.viewer.values.queries.heatmap import Window, bands, heat_map, worst_launch, worst_sites
from stepscope.viewer.values.rows import HEALTH
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import FINE, MASK, NAN, Program, ValueLog, attention

Open = Callable[[LogBuilder | bytes], Trace]


def test_heat_map(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    for step in range(3):
        log.call(program, step, buf1=NAN if step == 1 else FINE)
    heat = heat_map(opened(log.end()), 0, launches=True)
    assert heat.steps == heat.last_steps == [0, 1, 2]
    assert heat.kernels == ["extern_kernels.bmm", "cpp_fused__softmax_0", "extern_kernels.bmm"]
    finite, nan = HEALTH.index("finite"), HEALTH.index("nan")
    assert heat.cells == [[finite] * 3, [finite, nan, finite], [finite] * 3]
    assert heat.launches[1] == [1, 4, 7]
    assert heat.launch_steps[1] == [0, 1, 2]
    assert (heat.classes, heat.total_steps, heat.total_sites, heat.moves) == (list(HEALTH), 3, 3, {})
    orjson.dumps(heat)


def test_cells_of_a_large_heat_map_join_neighbours_and_show_the_worst(opened: Open) -> None:
    program = Program()
    for number in range(10):
        program.launch(f"k{number}", ["x"], [f"buf{number}"])
    log = ValueLog(program)
    for step in range(20):
        log.call(program, step, buf4=NAN if step in (7, 8) else FINE, buf5=MASK if step == 8 else FINE)
    trace = opened(log.end())
    finite, nan, masked = (HEALTH.index(name) for name in ("finite", "nan", "negative_infinity"))
    heat = heat_map(trace, 0, most_rows=5, most_columns=7, launches=True)
    assert (heat.joined_sites, heat.joined_steps) == ([2] * 5, [3] * 6 + [2])
    assert (heat.steps, heat.last_steps) == ([0, 3, 6, 9, 12, 15, 18], [2, 5, 8, 11, 14, 17, 19])
    assert heat.kernels == ["k0", "k2", "k4", "k6", "k8"]
    assert heat.cells[2] == [finite, finite, nan, finite, finite, finite, finite]
    assert (heat.launches[2][2], heat.launch_steps[2][2]) == (74, 7), "the first of the worst"
    window = Window(first_site=4, last_site=5, first_step=7, last_step=9)
    close = heat_map(trace, 0, window)
    assert close.cells == [[nan, nan, finite], [finite, masked, finite]]
    assert (close.first_site, close.total_sites, close.total_steps, close.launches) == (4, 10, 20, [])
    assert close.moves["earlier steps"] == {"first_site": 4, "last_site": 5, "first_step": 4, "last_step": 6}
    assert close.moves["launches before"] == {"first_step": 7, "last_step": 9, "first_site": 2, "last_site": 3}
    assert worst_launch(trace, 0, window) == 74
    assert worst_launch(trace, 0, Window(first_step=99)) is None
    assert heat_map(trace, 0, Window(first_site=400)).cells == []
    assert [(row.kernel, row.cells, row.first_step, row.first_launch) for row in worst_sites(trace, 0)] == [
        ("k4", 2, 7, 74),
        ("k5", 1, 8, 85),
    ]


def test_steps_may_be_far_apart_and_are_read_in_several_pieces(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heatmap, "MOST_READ", 1)
    program = attention()
    log = ValueLog(program)
    for step in (0, 7, 1 << 40):
        log.call(program, step, buf1=NAN if step == 7 else FINE, buf2=MASK if step > 7 else FINE)
    heat = heat_map(opened(log.end()), 0, launches=True)
    finite, nan, masked = (HEALTH.index(name) for name in ("finite", "nan", "negative_infinity"))
    assert heat.steps == [0, 7, 1 << 40]
    assert heat.cells == [[finite] * 3, [finite, nan, finite], [finite, finite, masked]]
    assert heat.launches == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    trace = opened(log.end())
    assert heat_map(trace, 0).cells == heat.cells
    later = heat_map(trace, 0, Window(1, 2, 3, 1 << 50))
    assert (later.cells, later.steps) == ([[nan, finite], [finite, masked]], [7, 1 << 40])
    monkeypatch.setattr(heatmap, "KEPT_BYTES", 1)  # too little for the map of the log
    assert heat_map(trace, 0, Window(1, 2, 3, 1 << 50)).cells == later.cells


@pytest.mark.parametrize(
    ("kinds", "most", "expected"),
    [
        ([], 4, []),
        ([0, 0, 1], 4, [(0, 1), (1, 2), (2, 3)]),
        ([0] * 5 + [1] * 2, 4, [(0, 2), (2, 4), (4, 5), (5, 7)]),
        ([0, 1, 2, 3, 4], 2, [(0, 3), (3, 5)]),
    ],
)
def test_bands(kinds: list[int], most: int, expected: list[tuple[int, int]]) -> None:
    assert bands(kinds, most) == expected


@pytest.mark.slow
def test_the_heat_map_of_a_long_run_is_bounded() -> None:
    """1,000 steps of 2,000 launch sites, put straight into an index: reading such a log takes a minute."""
    tables = (Path(heatmap.__file__).parents[2] / "store" / "schema.sql").read_text("utf-8")
    with duckdb.connect(config={"threads": 2}) as index:
        index.execute(f"ATTACH ':memory:' AS {NAME}; USE {NAME}; {tables}")
        index.execute("""
            INSERT INTO sites BY NAME SELECT range AS site, 'k' || range AS kernel, 0 AS graph FROM range(2000)
        """)
        index.execute("""
            INSERT INTO value_rows BY NAME
            SELECT range AS value, 0 AS log, range AS launch, range // 2000 AS step, range % 2000 AS site,
                   'after' AS moment, 64 AS looked_at, 0 AS zero, 0 AS near_overflow, 0 AS subnormal,
                   0 AS positive_infinity, 0 AS negative_infinity, (range = 1235234)::BIGINT AS nan FROM range(2000000)
        """)
        index.execute("INSERT INTO launches BY NAME SELECT launch, log, site, step FROM value_rows")
        trace = Trace([], index, IN_MEMORY)
        heat = heat_map(trace, 0)
        close = heat_map(trace, 0, Window(1000, 1599, 400, 799))
        found = worst_sites(trace, 0)
    assert (len(heat.cells), len(heat.steps), max(heat.joined_sites), max(heat.joined_steps)) == (500, 334, 4, 3)
    assert [row[617 // 3] for row in heat.cells].index(HEALTH.index("nan")) == 1234 // 4
    assert (len(close.cells), len(close.steps)) == (600, 400)
    assert [(row.site, row.first_step, row.first_launch, row.cells) for row in found] == [(1234, 617, 1235234, 1)]
    assert max(len(orjson.dumps(answer)) for answer in (heat, close)) < 600_000
