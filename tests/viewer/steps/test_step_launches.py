"""Launches of a window that are narrower than a pixel are merged; DuckDB's own sums over the index agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.steps.queries.steps import timeline
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.values.queries.values import HEALTH_INDEX
from tests.benchmarks.bench_viewer import write_log

pytestmark = pytest.mark.slow


_EXPECTED = f"""
    WITH health AS (
        SELECT v.launch, min({HEALTH_INDEX}) AS worst FROM value_rows v WHERE v.moment = 'after' GROUP BY v.launch
    ), shown AS (
        SELECT l.*, h.worst, l.start_ns - $start AS since,
               CASE WHEN l.duration_ns < $pixel THEN (l.start_ns - $start) // $pixel ELSE -1 - l.launch END AS bin
        FROM launches l LEFT JOIN health h ON h.launch = l.launch
        WHERE l.step = $step AND l.start_ns <= $stop AND l.start_ns + l.duration_ns >= $start
    )
    SELECT thread, min(since), max(since + duration_ns) - min(since), count(*), min(worst), max(duration_ns)
    FROM shown GROUP BY thread, bin ORDER BY 1, 2
"""


@pytest.mark.parametrize(("from_part", "to_part", "width"), [(0, 1, 50), (0.3, 0.6, 20), (0.1234, 0.4321, 7)])
def test_merged_launches_are_those_of_the_index(from_part: float, to_part: float, width: int, tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    write_log(log, steps=3)
    with open_trace(log, index_dir=tmp_path) as trace:
        row = list_steps(trace)[1]
        assert row.end_ns is not None
        start, stop = (row.start_ns + round(part * (row.end_ns - row.start_ns)) for part in (from_part, to_part))
        found = timeline(trace, 0, 1, start, stop, width)
        assert found is not None
        pixel = max(1, (stop - start) // width)
        wanted = {"start": start, "stop": stop, "pixel": pixel, "step": 1}
        expected = sql.rows(trace, _EXPECTED, wanted)
        columns = found.launches
        durations: dict[int, int] = dict(sql.rows(trace, "SELECT launch, duration_ns FROM launches"))
        sites: dict[int, int] = dict(sql.rows(trace, "SELECT launch, site FROM launches"))
    assert max(columns.count) > 2
    assert len(columns.launch) < 1_000 * (to_part - from_part)
    assert expected == list(
        zip(
            columns.thread, columns.start_ns, columns.duration_ns, columns.count, columns.health,
            [durations[launch] for launch in columns.launch], strict=True,
        )
    )  # fmt: skip
    assert columns.site == [sites[launch] for launch in columns.launch]


def test_of_calls_that_share_a_pixel_the_longest_stays_until_zooming_shows_all(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    write_log(log, steps=3)
    with open_trace(log, index_dir=tmp_path) as trace:
        row = list_steps(trace)[1]
        assert row.end_ns is not None
        pixel = (row.end_ns - row.start_ns) // 4
        starts: dict[int, int] = dict(sql.rows(trace, "SELECT call, start_ns FROM calls WHERE step = 1"))
        whole, finer = timeline(trace, 0, 1, width=4), timeline(trace, 0, 1, width=100_000)
        assert whole is not None
        assert finer is not None
    pixels = [starts[call.call] // pixel for call in whole.calls]
    assert sorted(pixels) == sorted({start // pixel for start in starts.values()})
    assert len(whole.calls) < len(starts) == len(finer.calls)
    assert max(whole.launches.count) > 1 == max(finer.launches.count)
