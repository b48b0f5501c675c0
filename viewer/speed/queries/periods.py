"""Provides sets of disjoint periods of time, and how much of a span they cover."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Periods:
    """Periods of one log, with overlapping ones joined."""

    def __init__(self, found: Iterable[tuple[int, int]]) -> None:
        """Create the set from pairs of start and end in nanoseconds."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(found):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)
        lengths = (end - start for start, end in zip(self._starts, self._ends, strict=True))
        self._before = [0, *accumulate(lengths)]

    def within(self, start: int, end: int) -> int:
        """Return how many nanoseconds of a span the periods cover."""
        return self._until(end) - self._until(start) if end > start else 0

    def outside_of(self, other: Periods) -> Periods:
        """Return what remains of the periods without those of `other`."""
        left: list[tuple[int, int]] = []
        for start, end in zip(self._starts, self._ends, strict=True):
            at = start
            first, last = bisect_right(other._ends, start), bisect_left(other._starts, end)
            for cut_start, cut_end in zip(other._starts[first:last], other._ends[first:last], strict=True):
                if cut_start > at:
                    left.append((at, cut_start))
                at = max(at, cut_end)
            if at < end:
                left.append((at, end))
        return Periods(left)

    def _until(self, at: int) -> int:
        place = bisect_right(self._starts, at)
        if not place:
            return 0
        return self._before[place] - max(0, self._ends[place - 1] - at)
