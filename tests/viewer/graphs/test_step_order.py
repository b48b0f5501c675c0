"""The calls and sites of a step's launches, and the nearest launches of other sites, are those of the index."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.graphs.queries.step_order import StepOrder
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from tests.benchmarks.bench_viewer import write_log


@pytest.mark.parametrize("sites", [2, 30, 3_000])
def test_the_nearest_launches_are_found_over_any_distance(sites: int) -> None:
    chance = random.Random(sites)
    ran = [chance.randrange(sites) for _ in range(5_000)]
    order = StepOrder(0, 0, 700, np.zeros(len(ran), np.int64), np.array(ran, np.int32))
    for _ in range(50):
        at, wanted = chance.randrange(len(ran)), [chance.randrange(sites), sites + 1]
        before = [700 + i for i, site in enumerate(ran) if site in wanted and i < at]
        after = [700 + i for i, site in enumerate(ran) if site in wanted and i > at]
        expected = (before[-1] if before else None, after[0] if after else None)
        assert order.neighbours(700 + at, wanted) == expected


@pytest.mark.slow
def test_the_panel_of_a_launch_names_the_launches_of_its_step_and_call(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    write_log(log, steps=3)
    with open_trace(log, index_dir=tmp_path) as trace:
        ran = sql.rows(
            trace,
            "SELECT l.launch, l.step, l.call, s.kernel FROM launches l JOIN sites s ON s.site = l.site ORDER BY 1",
        )
        details = [launch_detail(trace, launch) for launch in (0, 99, 100, 1_537, 1_999, 2_000, 2_999)]
    for detail in details:
        assert detail is not None
        launch, step, call, kernel = ran[detail.launch]
        same = [one[0] for one in ran if one[1] == step and one[3] == kernel]
        assert detail.previous_same == max((one for one in same if one < launch), default=None)
        assert detail.next_same == min((one for one in same if one > launch), default=None)
        assert (detail.step, detail.of, detail.ordinal) == (step, 1_000, launch - 1_000 * step + 1)
        in_call = [one[0] for one in ran if one[2] == call]
        place = in_call.index(launch)
        # Each launch reads what the four before it wrote, or inputs, and writes one buffer.
        writers = {argument: None if argument >= place else launch - 1 - argument for argument in range(4)}
        assert detail.written_by == writers
        assert detail.read_by == {4: in_call[place + 1 : place + 5]}
