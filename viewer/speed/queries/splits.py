"""Splits the time of steps into disjoint parts.

The time of a step reaches from the end of the step before to its own end, which is the step of its optimizer or its
last call. It is divided at the outermost calls of compiled graphs: launches and the rest of a call; the gap before a
call that resumes after a graph break, which belongs to the line of the break; other gaps; and compiles and waiting for
data, which are taken out of the gaps. Of the waits, those of the thread of the first call count."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import steps_by_number
from stepscope.viewer.speed.queries.periods import Periods
from stepscope.viewer.speed.queries.verdict import step_verdict
from stepscope.viewer.speed.rows import PartKind, StepSplit, in_order
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

KEPT_LOGS = 16
"""Number of logs of which an open trace keeps the splits in memory."""
MOST_CALLS = 100_000
"""Number of calls from which on a portion of logs is full."""
MOST_DIVIDED = 2_000
"""Number of steps of a log of which all are divided for the page of one of them."""
_ENDS_LATER = ("optimizer", "user")
"""What ends a step later than its last call."""
_RESUMED = re.compile(r"torch_dynamo_resume_in_.+_at_(\d+)$")
_CALLS = """
    SELECT c.log, c.step, c.thread, c.start_ns, c.start_ns + c.duration_ns AS end_ns, c.state = 'replayed' AS is_replay,
           CASE WHEN g.phase IS DISTINCT FROM 'backward' THEN f.file END AS file, f.function
    FROM calls c LEFT JOIN graphs g ON g.graph = c.graph
    LEFT JOIN compiles f ON f.log = g.log AND f.compile_id = g.compile_id
    WHERE c.depth = 0 AND c.duration_ns IS NOT NULL AND c.state <> 'printed' AND c.log BETWEEN $1 AND $2
      AND ($3 IS NULL OR c.step = $3)
    ORDER BY c.log, c.start_ns
"""
_BEFORE = """
    SELECT max(greatest(c.start_ns + c.duration_ns, CASE WHEN list_contains($4, s.by_what) THEN s.end_ns END))
    FROM calls c JOIN steps s ON s.log = c.log AND s.step = c.step
    WHERE c.log = $1 AND c.depth = 0 AND c.duration_ns IS NOT NULL AND c.state <> 'printed'
      AND s.kind <> 'data' AND (s.start_ns < $3 OR (s.start_ns = $3 AND s.step < $2))
"""
_LAUNCHES = """
    SELECT l.log, l.step, sum(l.duration_ns)::BIGINT FROM launches l JOIN sites s ON s.site = l.site
    JOIN calls c ON c.call = l.call
    WHERE s.kind <> 'subgraph' AND c.state <> 'replayed' AND l.log BETWEEN $1 AND $2
      AND ($3 IS NULL OR l.step = $3)
    GROUP BY ALL
"""
_COMPILES = """
    SELECT s.log, s.start_unix_ns - l.unix_ns + l.monotonic_ns, s.duration_ns FROM spans s JOIN logs l ON l.log = s.log
    WHERE s.depth = 0 AND s.duration_ns > 0 AND l.monotonic_ns IS NOT NULL AND s.log BETWEEN $1 AND $2
"""
_WAITS = "SELECT log, thread, start_ns, duration_ns FROM data_waits WHERE duration_ns > 0 AND log BETWEEN $1 AND $2"
_BREAKS = """
    SELECT e.log, e.file, e.line, any_value(e.function), any_value(e.code) FROM compile_events e
    WHERE e.kind = 'graph_break' AND e.line IS NOT NULL AND e.log BETWEEN $1 AND $2 GROUP BY ALL
"""
_ON_DEVICE = "SELECT DISTINCT log FROM sites WHERE kind IN ('triton', 'user_triton') AND log BETWEEN $1 AND $2"
_READS = """
    SELECT log FROM logs WHERE log BETWEEN $1 AND $2
      AND (run->>'$.level' IN ('values', 'save') OR coalesce(run->>'$.config.judge', 'off') <> 'off')
"""
_STEPS = """
    SELECT log, step, kind, by_what, start_ns, end_ns FROM steps
    WHERE log BETWEEN $1 AND $2 AND start_ns IS NOT NULL ORDER BY log, start_ns
"""
_SIZES = "SELECT log, sum(calls)::BIGINT FROM steps WHERE calls > 0 GROUP BY log ORDER BY log"
_NEVER = Periods(())


class _Call(NamedTuple):
    log: int
    step: int
    thread: int
    start_ns: int
    end_ns: int
    is_replay: bool
    file: str | None
    function: str | None


class _Step(NamedTuple):
    log: int
    step: int
    kind: str
    by_what: str | None
    start_ns: int
    end_ns: int | None


class _Facts(NamedTuple):
    """What is known about the time of one log."""

    launch_ns: Mapping[int, int]
    """Host time of the launches of each step."""
    compiles: Periods
    waits: Mapping[int, Periods]
    """Waits for data of each thread; those of a thread that fetches batches for another one delay no step."""
    breaks: Mapping[tuple[str, int], SourceLine]
    on_device: bool
    reads: bool
    """Whether the recorder read tensors between launches."""


def step_splits(trace: Trace, log: int) -> dict[int, StepSplit]:
    """Return the split of each step of a log that has calls, by step."""
    return trace.once(_step_splits, log, most=KEPT_LOGS)


def step_split(trace: Trace, log: int, step: int) -> StepSplit | None:
    """Return the split of one step, or None if it has no calls. In a long log, the other steps are not divided."""
    steps = steps_by_number(trace, log)
    if len(steps) <= MOST_DIVIDED:
        return step_splits(trace, log).get(step)
    row = steps.get(step)
    calls = sql.records(_Call, trace, _CALLS, [log, log, step])
    if row is None or row.kind == "data" or not calls:
        return None
    before_ns = sql.number(trace, _BEFORE, [log, step, row.start_ns, list(_ENDS_LATER)])
    asked = _Step(log, step, row.kind or "", row.by, row.start_ns, row.end_ns)
    return _split(asked, calls, _facts(trace, log, log, step)(log), before_ns)


def all_splits(trace: Trace) -> Iterator[tuple[int, dict[int, StepSplit]]]:
    """Yield the splits of each log that has steps with calls, a portion of the logs at a time."""
    first, count = None, 0
    sizes = sql.rows(trace, _SIZES)
    for place, (log, calls) in enumerate(sizes):
        first, count = log if first is None else first, count + calls
        if count >= MOST_CALLS or place == len(sizes) - 1:
            yield from _read(trace, first, log).items()
            first, count = None, 0


def _step_splits(trace: Trace, log: int) -> dict[int, StepSplit]:
    return _read(trace, log, log).get(log, {})


def _read(trace: Trace, first: int, last: int) -> dict[int, dict[int, StepSplit]]:
    """Return the splits of the logs with numbers from `first` to `last`."""
    calls: defaultdict[tuple[int, int], list[_Call]] = defaultdict(list)
    for call in sql.records(_Call, trace, _CALLS, [first, last, None]):
        calls[call.log, call.step].append(call)
    found: dict[int, dict[int, StepSplit]] = {}
    facts = _facts(trace, first, last)
    before_ns = None
    for row in sql.records(_Step, trace, _STEPS, [first, last]):
        of_step = calls.get((row.log, row.step))
        if row.kind == "data" or not of_step:
            continue
        if row.log not in found:
            found[row.log], before_ns = {}, None
        found[row.log][row.step] = split = _split(row, of_step, facts(row.log), before_ns)
        before_ns = max(before_ns or 0, split.end_ns)
    return found


def _facts(trace: Trace, first: int, last: int, step: int | None = None) -> Callable[[int], _Facts]:
    """Return the facts about each log, with the launches of all of its steps or of one."""

    def by_log(statement: str, *further: int | None) -> dict[int, list[sql.Row]]:
        found: defaultdict[int, list[sql.Row]] = defaultdict(list)
        for row in sql.rows(trace, statement, [first, last, *further]):
            found[row[0]].append(row[1:])
        return found

    launches = by_log(_LAUNCHES, step)
    compiles, waits, breaks = map(by_log, (_COMPILES, _WAITS, _BREAKS))
    on_device, reads = by_log(_ON_DEVICE), by_log(_READS)

    @cache
    def of_log(log: int) -> _Facts:
        compiling = Periods((start, start + lasts) for start, lasts in compiles.get(log, ()))
        by_thread: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for thread, start, lasts in waits.get(log, ()):
            by_thread[thread].append((start, start + lasts))
        return _Facts(
            {step: total or 0 for step, total in launches.get(log, ())},
            compiling,
            {thread: Periods(spans).outside_of(compiling) for thread, spans in by_thread.items()},
            {(row[0], row[1]): SourceLine(row[0], row[1], row[2] or "", row[3] or "")
             for row in breaks.get(log, ()) if row[0]},
            log in on_device,
            log in reads,
        )  # fmt: skip

    return of_log


def _split(row: _Step, calls: Sequence[_Call], facts: _Facts, before_ns: int | None) -> StepSplit:
    first = calls[0].start_ns
    start = row.start_ns if before_ns is None or before_ns > first else before_ns
    start = min(start, first)
    sums: Counter[tuple[PartKind, SourceLine | None]] = Counter()
    in_calls = replays = 0
    data = facts.waits.get(calls[0].thread, _NEVER)
    at = start
    for number, call in enumerate(calls):
        _gap(sums, ("between", None) if number else ("outside", None), _break(call, facts) if number else None,
             (at, call.start_ns), facts.compiles, data)  # fmt: skip
        inside = max(0, call.end_ns - max(at, call.start_ns))
        in_calls += inside
        replays += inside if call.is_replay else 0
        at = max(at, call.end_ns)
    end = max(at, row.end_ns or 0) if row.by_what in _ENDS_LATER else at
    _gap(sums, ("after", None), None, (at, end), facts.compiles, data)
    launches = min(in_calls, max(0, facts.launch_ns.get(row.step, 0) + replays))
    sums["launching" if facts.on_device else "kernels", None] += launches
    sums["reading" if facts.reads else "host", None] += in_calls - launches
    split = StepSplit(row.log, row.step, start, end, in_order(sums))
    return replace(split, verdict=step_verdict(split))


def _gap(
    sums: Counter[tuple[PartKind, SourceLine | None]],
    kind: tuple[PartKind, None],
    line: SourceLine | None,
    span: tuple[int, int],
    compiles: Periods,
    data: Periods,
) -> None:
    """Add the time between two calls to its parts."""
    start, end = span
    if end <= start:
        return
    compiling, waiting = compiles.within(start, end), data.within(start, end)
    sums["compile", None] += compiling
    sums["data", None] += waiting
    sums[kind if line is None else ("break", line)] += end - start - compiling - waiting


def _break(call: _Call, facts: _Facts) -> SourceLine | None:
    """Return the line of the graph break after which a call resumes; None for other calls."""
    found = _RESUMED.search(call.function or "")
    if found is None or call.file is None:
        return None
    place = call.file, int(found[1])
    return facts.breaks.get(place) or SourceLine(*place, "", "")
