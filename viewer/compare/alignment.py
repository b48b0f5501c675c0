"""Finds a longest common subsequence of two lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence


def longest_common_subsequence(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the places of the equal items, in order.

    Each row of the table of lengths is one integer with a bit for each item of `left` (Hyyrö, "Bit-parallel LCS-length
    computation revisited", 2004), so that lists of 20,000 items take a second and 50 MB.
    """
    places: defaultdict[Hashable, int] = defaultdict(int)
    for place, item in enumerate(left):
        places[item] |= 1 << place
    full = row = (1 << len(left)) - 1
    rows = []
    for item in right:
        found = row & places.get(item, 0)
        row = ((row + found) | (row - found)) & full
        rows.append(row)
    pairs = []
    a, b = len(left), len(right)
    while a and b:
        if rows[b - 1] >> (a - 1) & 1:
            a -= 1
        elif b > 1 and not rows[b - 2] >> (a - 1) & 1:
            b -= 1
        else:
            a, b = a - 1, b - 1
            pairs.append((a, b))
    return pairs[::-1]
