"""Times of launches from the begin and end of the readings around them."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.tracer.runtime.device.times import between_readings

Pairs = list[tuple[int, int]]


def between(times: Pairs, rows: list[int], read_at: list[int]) -> tuple[list[int], list[int]]:
    return between_readings(np.array(times, dtype=np.int64).reshape(-1, 2), rows, read_at)


def test_a_launch_between_two_readings() -> None:
    assert between([(100, 110), (150, 160)], [1, 1], [0, 1]) == ([0], [40])


def test_rows_of_a_reading_run_side_by_side() -> None:
    times = [(100, 110), (104, 130), (160, 170), (150, 190), (200, 210)]
    assert between(times, [2, 2, 1], [3, 4, 5]) == ([3, 4], [20, 10])


def test_several_launches_between_two_readings_are_not_told_apart() -> None:
    assert between([(100, 110), (150, 160), (170, 180)], [1, 1, 1], [0, 2, 3]) == ([2], [10])


def test_of_two_readings_at_one_place_the_nearer_one_counts() -> None:
    assert between([(100, 110), (120, 130), (150, 160)], [1, 1, 1], [4, 4, 5]) == ([4], [20])


def test_a_reading_of_nothing_has_no_time() -> None:
    times = [(100, 110), (0, 0), (150, 160), (0, 0)]
    assert between(times, [1, 1, 2], [0, 1, 2]) == ([], [])
    assert between(times, [2, 2, 0], [0, 1, 1]) == ([0], [40])
    assert between([(0, 0)], [1], [0]) == ([], [])
    assert between([], [], []) == ([], [])


def test_what_seems_to_end_before_it_began_ran_on_another_stream() -> None:
    assert between([(100, 200), (150, 160), (170, 180)], [1, 1, 1], [0, 1, 2]) == ([1], [10])


def test_readings_and_times_must_fit() -> None:
    with pytest.raises(ValueError, match="rows"):
        between([(1, 2)], [2], [0])
    with pytest.raises(ValueError, match="rows"):
        between([(1, 2)], [1], [0, 1])
