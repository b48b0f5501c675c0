"""A clock that shortens long gaps between events, so that events hours apart fit on one axis."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SHORTEST_GAP_NS = 1_000_000_000
_LEAST_SHOWN_NS = 1_000_000
_MOST_GAPS = 50
_GAPS = """
    WITH events AS (
        SELECT start_unix_ns AS low, start_unix_ns + duration_ns AS high FROM spans WHERE $log IS NULL OR log = $log
        UNION ALL SELECT unix_ns, unix_ns FROM span_marks WHERE $log IS NULL OR log = $log
    ), placed AS (
        SELECT low, high, max(high) OVER (ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until
        FROM events
    )
    SELECT min(low), max(high), list({'start': until, 'length': low - until}) FILTER (low - until >= $shortest)
    FROM placed
"""


@dataclass(frozen=True)
class Gap:
    """A period without events that is shown shorter than it was."""

    at_ns: int
    """Position on the shortened axis."""
    shown_ns: int
    length_ns: int


@dataclass(frozen=True)
class FoldedClock:
    origin_unix_ns: int
    end_ns: int
    gaps: list[Gap]
    starts_ns: list[int]
    """Start of each gap since the first event, in real time."""

    def fold(self, unix_ns: int) -> int:
        """Return the position of a Unix time on the axis, in ns since the first event."""
        at = unix_ns - self.origin_unix_ns
        number = bisect_right(self.starts_ns, at) - 1
        if number < 0:
            return at
        gap, inside = self.gaps[number], at - self.starts_ns[number]
        return gap.at_ns + max(min(inside, gap.shown_ns), inside - gap.length_ns + gap.shown_ns)

    def unfold(self, shown_ns: int) -> int:
        """Return the Unix time of a position on the axis."""
        number = bisect_right(self.gaps, shown_ns, key=lambda gap: gap.at_ns) - 1
        if number < 0:
            return self.origin_unix_ns + shown_ns
        gap, inside = self.gaps[number], shown_ns - self.gaps[number].at_ns
        after = inside if inside < gap.shown_ns else inside - gap.shown_ns + gap.length_ns
        return self.origin_unix_ns + self.starts_ns[number] + after


def folded_clock(trace: Trace, log: int | None = None) -> FoldedClock | None:
    """Shorten the gaps that last at least a second and twice the time outside gaps; return None without events."""
    found = sql.rows(trace, _GAPS, {"log": log, "shortest": _SHORTEST_GAP_NS})[0]
    if found[0] is None:
        return None
    origin, end, gaps = found
    longest = sorted(gaps or [], key=lambda gap: -gap["length"])
    rest = end - origin - sum(gap["length"] for gap in longest)
    folded = sorted((gap["start"], gap["length"]) for gap in longest[:_MOST_GAPS] if gap["length"] >= 2 * rest)
    shown = max(_LEAST_SHOWN_NS, rest // (50 + len(folded)))
    placed, cut = list[Gap](), 0
    for start, length in folded:
        placed.append(Gap(start - origin - cut, shown, length))
        cut += length - shown
    return FoldedClock(origin, max(1, end - origin - cut), placed, [start - origin for start, _ in folded])
