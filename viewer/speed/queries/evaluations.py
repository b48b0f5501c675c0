"""Queries the calls without gradients, in training steps, of functions that these steps also train."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import orjson

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.speed.queries.periods import Periods
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_PAIRS = """
    WITH reasons AS (
        SELECT log, compile_id, unnest(string_split(text, chr(10))) AS reason FROM compile_events
        WHERE kind IN ('recompile', 'recompile_limit')
    ), changed AS (
        SELECT log, compile_id AS one, trim(split_part(reason, ':', 1)) AS other FROM reasons
        WHERE contains(reason, 'grad_mode')
    ), again AS (
        SELECT DISTINCT c.graph FROM calls c JOIN (
            SELECT log, unnest(from_json(call, '["BIGINT"]')) AS local_call FROM calls_in_backward
        ) USING (log, local_call)
    )
    SELECT DISTINCT x.log, f.graph, i.graph, regexp_replace(i.compile_id, '/[^/]*$', '') FROM changed x
    JOIN graphs f ON f.log = x.log AND f.phase = 'forward' AND f.compile_id IN (x.one, x.other)
    JOIN graphs i ON i.log = x.log AND i.phase = 'inference' AND i.compile_id IN (x.one, x.other)
    WHERE f.graph NOT IN (SELECT graph FROM again WHERE graph IS NOT NULL)
"""
_CALLS = """
    WITH measured AS (
        SELECT unnest(from_json(call, '["BIGINT"]')) AS call, unnest(from_json(own_ns, '["BIGINT"]')) AS own_ns
        FROM call_gaps WHERE log = $1
    )
    SELECT c.step, c.thread, c.graph, g.phase, c.start_ns, c.start_ns + c.duration_ns AS end_ns,
           coalesce(m.own_ns, 0) AS own_ns
    FROM calls c JOIN steps s ON s.log = c.log AND s.step = c.step JOIN graphs g ON g.graph = c.graph
    LEFT JOIN measured m ON m.call = c.local_call
    WHERE c.log = $1 AND c.depth = 0 AND c.duration_ns IS NOT NULL AND s.kind = 'train' AND s.by_what = 'optimizer'
    ORDER BY c.step, c.start_ns
"""
_APART = """
    SELECT start_ns, start_ns + duration_ns FROM optimizer_steps WHERE log = $1
    UNION ALL SELECT start_ns, start_ns + duration_ns FROM data_waits WHERE log = $1 AND $2
"""
_STACKS = """
    WITH spans AS (SELECT unnest($2) AS start_ns, unnest($3) AS end_ns), samples AS (
        SELECT unnest(from_json(ns, '["BIGINT"]')) AS ns, unnest(from_json(place, '["BIGINT"]')) AS place
        FROM line_samples WHERE log = $1
    )
    SELECT s.files, s.lines, s.functions, s.code, count(*) FROM samples m
    JOIN sampled_lines s ON s.log = $1 AND s.place = m.place
    WHERE EXISTS (FROM spans p WHERE m.ns >= p.start_ns AND m.ns < p.end_ns) GROUP BY ALL
"""
Spans = Sequence[tuple[int, int]]
"""Begins and ends (ns)."""


class _Call(NamedTuple):
    step: int
    thread: int
    graph: int
    phase: str | None
    start_ns: int
    end_ns: int
    own_ns: int
    """The recorder's own time before it."""


class _Frames(NamedTuple):
    """The compiled functions of the graphs of one log that are called with and without gradients."""

    trained: dict[int, str]
    evaluated: dict[int, str]


class Evaluation(NamedTuple):
    """The calls without gradients, in one training step, of functions that the step also trains."""

    step: int
    graph: int
    """The graph that is called first."""
    trained: int
    """A graph of the same function that computes gradients in the step."""
    calls: int
    """Number of calls of this function without gradients."""
    trained_calls: int
    """Number of its calls with gradients."""
    spans: Spans
    """From the begin of the first to the end of the last of these calls between which the step does not train."""
    own_ns: int
    """The recorder's own time between these calls."""
    trains_later: bool
    """Whether the step trains after some of them."""


def evaluations(trace: Trace) -> dict[int, list[Evaluation]]:
    """Return the training steps with such calls, by log.

    That the calls differ from those that train in whether gradients are enabled follows from the reason of a recompile.
    Functions that are also called while a backward pass runs, as those of checkpoints, are left out."""
    frames: defaultdict[int, _Frames] = defaultdict(lambda: _Frames({}, {}))
    for log, trained, evaluated, frame in sql.rows(trace, _PAIRS) if sql.has_rows(trace, "compile_events") else ():
        frames[log].trained[trained] = frames[log].evaluated[evaluated] = frame
    return {log: list(_of_log(trace, log, of_log)) for log, of_log in frames.items()}


def _of_log(trace: Trace, log: int, frames: _Frames) -> Iterator[Evaluation]:
    for _, of_step in groupby(sql.records(_Call, trace, _CALLS, [log]), lambda call: call.step):
        calls = list(of_step)
        trained = [call for call in calls if call.graph in frames.trained]
        wanted = {frames.trained[call.graph] for call in trained}
        found = [call for call in calls if frames.evaluated.get(call.graph) in wanted]
        same_thread = [call for call in found if call.thread == trained[0].thread]
        if same_thread:
            yield _evaluation(calls, trained, same_thread, frames)


def _evaluation(
    calls: Sequence[_Call], trained: Sequence[_Call], found: Sequence[_Call], frames: _Frames
) -> Evaluation:
    begins = [call.start_ns for call in calls if call.phase in ("forward", "backward")]
    series = [list(same) for _, same in groupby(found, lambda call: bisect_left(begins, call.start_ns))]
    spans = [(same[0].start_ns, max(call.end_ns for call in same)) for same in series]
    within = [call for call in calls if call.thread == found[0].thread]
    frame = frames.evaluated[found[0].graph]
    of_frame = [call for call in trained if frames.trained[call.graph] == frame]
    return Evaluation(
        step=calls[0].step,
        graph=found[0].graph,
        trained=of_frame[0].graph,
        calls=sum(frames.evaluated[call.graph] == frame for call in found),
        trained_calls=len(of_frame),
        spans=spans,
        own_ns=sum(call.own_ns for start, end in spans for call in within if start < call.start_ns < end),
        trains_later=found[0].start_ns < begins[-1],
    )


def other_times(trace: Trace, log: int, *, data: bool) -> Periods:
    """Return when optimizers step, and, if asked for, when the program waits for data."""
    return Periods(sql.rows(trace, _APART, [log, data]))


def caller(trace: Trace, log: int, spans: Spans, called: SourceLine, around: SourceLine) -> SourceLine | None:
    """Return the line in the function of the line `around`, else the next one, from which the function of the line
    `called` is called, as most samples within spans show it; None if both are in one function or none shows it."""
    if (called.file, called.function) == (around.file, around.function):
        return None
    rows = sql.rows(trace, _STACKS, [log, [start for start, _ in spans], [end for _, end in spans]])
    found: Counter[SourceLine] = Counter()
    for *columns, count in rows:
        stack = [SourceLine(*line) for line in zip(*map(orjson.loads, columns), strict=True)]
        inner = [place for place, line in enumerate(stack) if _are_in_one_function(line, called)]
        above = stack[: inner[-1]] if inner else []
        for line in [line for line in above if _are_in_one_function(line, around)][-1:] or above[-1:]:
            found[line] += count
    most = found.most_common(1)[0][0] if found else None
    return most if most is not None and most.place != called.place else None


def _are_in_one_function(one: SourceLine, other: SourceLine) -> bool:
    return (one.file, one.function) == (other.file, other.function)
