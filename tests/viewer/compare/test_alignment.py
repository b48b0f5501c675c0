"""Tests the longest common subsequence against the table of its definition."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stepscope.viewer.compare.alignment import longest_common_subsequence

LISTS = st.lists(st.integers(0, 3), max_size=12)


@given(LISTS, LISTS)
def test_it_is_common_in_order_and_longest(left: list[int], right: list[int]) -> None:
    pairs = longest_common_subsequence(left, right)
    assert [left[a] for a, _ in pairs] == [right[b] for _, b in pairs]
    for (a, b), (c, d) in itertools.pairwise(pairs):
        assert a < c
        assert b < d
    lengths = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for a, item in enumerate(left):
        for b, other in enumerate(right):
            lengths[a + 1][b + 1] = max(lengths[a][b + 1], lengths[a + 1][b], lengths[a][b] + (item == other))
    assert len(pairs) == lengths[-1][-1]
