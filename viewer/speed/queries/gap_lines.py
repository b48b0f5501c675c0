"""Queries which lines of the program take the time between calls of graphs, by the samples of the recorder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import orjson

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_SAMPLES = 8
"""Minimum number of samples from which something is concluded."""
_MOST_PERCENT = 1_000_000
"""Bound for the delays of a sample, which only a damaged log exceeds."""
MOST = 0.5
"""Share of the samples that the named line has at least."""
_SAMPLES = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns), samples AS (
        SELECT unnest(from_json(ns, '["BIGINT"]')) AS ns, unnest(from_json(place, '["BIGINT"]')) AS place,
               unnest(from_json(thread, '["BIGINT"]')) AS thread,
               unnest(from_json(held_ns, '["BIGINT"]')) AS held_ns,
               unnest(from_json(delayed, '["BIGINT"]')) AS delayed
        FROM line_samples WHERE log = $1
    ), apart AS (
        SELECT thread, start_ns, duration_ns FROM optimizer_steps WHERE log = $1
        UNION ALL SELECT thread, start_ns, duration_ns FROM data_waits WHERE log = $1 AND NOT $4
    )
    SELECT place, count(*), count(*) FILTER (held_ns > 0), sum(least(greatest(coalesce(delayed, 0), 0), $5))::BIGINT
    FROM samples m
    WHERE EXISTS (FROM spans s WHERE m.ns >= s.start_ns AND m.ns < s.end_ns)
      AND NOT EXISTS (
          FROM apart a WHERE a.thread = m.thread AND m.ns >= a.start_ns AND m.ns < a.start_ns + a.duration_ns
      )
    GROUP BY place
"""
_PLACES = "SELECT place, files, lines, functions, code FROM sampled_lines WHERE log = ?"

_DELAYED_IN_CALLS = """
    SELECT sum(least(greatest(delayed_in_calls, 0), $2::DOUBLE * looks_in_calls))::DOUBLE / sum(looks_in_calls) / 100
    FROM line_samples WHERE log = $1 AND looks_in_calls > 0 HAVING sum(looks_in_calls) >= $3
"""

Stack = tuple[SourceLine, ...]
T = TypeVar("T")


class HotLine(NamedTuple):
    """The innermost line of the program in which most of some time passes."""

    source: SourceLine
    share: float
    """The part of the samples in which this line runs, or what it calls."""
    samples: int
    """Number of all samples of this time."""
    callers: Stack
    """The lines that lead to it, the outermost one first."""
    function: str | None
    """The function that this line calls, if most of the time passes in several lines of it."""
    inside: tuple[int, int] | None
    """The first and the last line of this function that were seen."""
    busiest: SourceLine | None
    """The line of this function with most samples."""
    is_after: bool = False
    """Whether the thread mostly computed in Python until it came to this line, and only then could be seen."""
    delayed: float = 0.0
    """The part of the time in which the thread waited for a core of the machine; 0 if this is unknown."""

    @property
    def innermost(self) -> SourceLine:
        """The line to look at: the one with most samples in the function in which most of the time passes."""
        return self.busiest or self.source

    def encloses(self, line: SourceLine | None) -> bool:
        """Return whether most of the time passes in the function of a line, so that it is spread around this line."""
        inner = self.busiest
        return inner is not None and line is not None and (inner.file, inner.function) == (line.file, line.function)


def hot_line(trace: Trace, log: int, spans: Sequence[tuple[int, int]], *, waiting: bool = False) -> HotLine | None:
    """Return the line that takes most of the time within spans, without steps of optimizers and, unless `waiting` is
    set, waits for data. None if there is no such line, or if there are few samples."""
    asked = [log, [start for start, _ in spans], [end for _, end in spans], waiting, _MOST_PERCENT]
    counts: list[tuple[int, int, int, int]] = sql.rows(trace, _SAMPLES, asked) if spans else []
    if sum(count for _, count, *_ in counts) < LEAST_SAMPLES:
        return None
    stacks = {place: _stack(*columns) for place, *columns in sql.rows(trace, _PLACES, [log])}
    known = [(stacks[place], count, held) for place, count, held, _ in counts if place in stacks]
    hot = hottest([(stack, count) for stack, count, _ in known])
    if hot is None:
        return None
    after = sum(held for stack, _, held in known if stack == (*hot.callers, hot.source))
    delayed = sum(percent for *_, percent in counts) / sum(count for _, count, *_ in counts) / 100
    return hot._replace(is_after=after > MOST * hot.share * hot.samples, delayed=min(1.0, delayed))


def delayed_in_calls(trace: Trace, log: int) -> float | None:
    """Return the part of the time of calls of graphs in which their thread waited for a core of the machine; None if
    this is unknown."""
    found = sql.rows(trace, _DELAYED_IN_CALLS, [log, _MOST_PERCENT, LEAST_SAMPLES])
    return min(1.0, found[0][0]) if found else None


def _stack(*columns: str) -> Stack:
    rows = zip(*map(orjson.loads, columns), strict=True)
    return tuple(SourceLine(file, line, function, code) for file, line, function, code in rows)


def hottest(samples: Sequence[tuple[Stack, int]]) -> HotLine | None:
    """Follow the lines that most samples share, from the outermost frame inwards."""
    total = sum(count for _, count in samples)
    path: Stack = ()
    count = 0
    while True:
        below = [(stack, number) for stack, number in samples if stack[: len(path)] == path and len(stack) > len(path)]
        lines = _summed((stack[len(path)], number) for stack, number in below)
        if not lines or lines[0][1] < MOST * total:
            break
        path, count = (*path, lines[0][0]), lines[0][1]
    if not path:
        return None
    return HotLine(path[-1], count / total, total, path[:-1], *_called(below, len(path), total))


def _called(
    below: Iterable[tuple[Stack, int]], depth: int, total: int
) -> tuple[str, tuple[int, int], SourceLine] | tuple[None, None, None]:
    """Return the function in whose lines most samples are, its first and last line that was seen, and the line with
    most samples."""
    lines = [(stack[depth], number) for stack, number in below]
    functions = _summed(((line.file, line.function), number) for line, number in lines)
    if not functions or functions[0][1] < MOST * total:
        return None, None, None
    place = functions[0][0]
    seen = _summed((line, number) for line, number in lines if (line.file, line.function) == place)
    numbers = [line.line for line, _ in seen]
    return place[1], (min(numbers), max(numbers)), seen[0][0]


def _summed(pairs: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
    counts: Counter[T] = Counter()
    for one, number in pairs:
        counts[one] += number
    return counts.most_common()
