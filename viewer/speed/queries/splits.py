"""Splits the time of steps into disjoint parts.

The time of a step reaches from the end of the step before to its own end, which is the step of its optimizer or its
last call. It is divided at the outermost calls of compiled graphs: launches and the rest of a call; the gap before a
call that resumes after a graph break, which belongs to the line of the break; other gaps; and compiles, waiting for
data and steps of optimizers, which are taken out of the gaps. Of the latter two, those of the thread of the first call
count. Calls that a debug printer recorded do not count: their times are those at which the text was read."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from stepscope.tracer.schema.constants import PRINTED_KEY
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
_TIMED = f"""
    c.depth = 0 AND c.duration_ns IS NOT NULL
      AND NOT EXISTS (FROM graphs p WHERE p.graph = c.graph AND starts_with(p.wrapper_key, '{PRINTED_KEY}'))
"""
_CALLS = f"""
    SELECT c.log, c.step, c.local_call AS number, c.thread, c.graph, c.start_ns, c.start_ns + c.duration_ns AS end_ns,
           c.state = 'replayed' AS is_replay,
           CASE WHEN g.phase IS DISTINCT FROM 'backward' THEN f.file END AS file, f.function
    FROM calls c LEFT JOIN graphs g ON g.graph = c.graph
    LEFT JOIN compiles f ON f.log = g.log AND f.compile_id = g.compile_id
    WHERE {_TIMED} AND c.log BETWEEN $1 AND $2
      AND ($3 IS NULL OR c.step = $3)
    ORDER BY c.log, c.start_ns
"""
_BEFORE = f"""
    SELECT max(greatest(c.start_ns + c.duration_ns, CASE WHEN list_contains($4, s.by_what) THEN s.end_ns END))
    FROM calls c JOIN steps s ON s.log = c.log AND s.step = c.step
    WHERE c.log = $1 AND {_TIMED}
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
_OPTIMIZERS = (
    "SELECT log, thread, start_ns, duration_ns FROM optimizer_steps WHERE duration_ns > 0 AND log BETWEEN $1 AND $2"
)
_BREAKS = """
    SELECT e.log, if(e.resumed_line IS NULL, e.file, c.file), coalesce(e.resumed_line, e.line), e.file, e.line,
           any_value(e.function), any_value(e.code)
    FROM compile_events e LEFT JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id
    WHERE e.kind = 'graph_break' AND e.line IS NOT NULL AND e.log BETWEEN $1 AND $2 GROUP BY ALL
"""
_ON_DEVICE = """
    SELECT log FROM sites WHERE kind IN ('triton', 'user_triton') AND log BETWEEN $1 AND $2
    UNION SELECT log FROM tensors WHERE starts_with(device, 'cuda') AND log BETWEEN $1 AND $2
"""
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
    number: int
    """Number in the log."""
    thread: int
    graph: int | None
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
    optimizers: Mapping[int, Periods]
    """Steps of optimizers of each thread."""
    breaks: Mapping[tuple[str, int], SourceLine]
    """The line of each graph break, by the line of the compiled function after which it resumes."""
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
    found: dict[int, dict[int, StepSplit]] = {}
    for row, calls, facts, before_ns in _divisible(trace, first, last):
        found.setdefault(row.log, {})[row.step] = _split(row, calls, facts, before_ns)
    return found


def step_gaps(trace: Trace, log: int, steps: Iterable[int]) -> list[Gap]:
    """Return the gaps of some steps of a log."""
    wanted = set(steps)
    found: list[Gap] = []
    previous: _Call | None = None
    for row, calls, facts, before_ns in _divisible(trace, log, log):
        if row.step in wanted:
            found += [gap for _, _, gap in _gaps(calls, facts, *_span(row, calls, before_ns), previous)]
        previous = max(calls, key=lambda call: call.end_ns)
    return found


def _divisible(trace: Trace, first: int, last: int) -> Iterator[tuple[_Step, list[_Call], _Facts, int | None]]:
    """Yield each step of the logs from `first` to `last` that has calls, with these, the facts about its log, and the
    end of the step before."""
    calls: defaultdict[tuple[int, int], list[_Call]] = defaultdict(list)
    for call in sql.records(_Call, trace, _CALLS, [first, last, None]):
        calls[call.log, call.step].append(call)
    facts = _facts(trace, first, last)
    log, before_ns = None, None
    for row in sql.records(_Step, trace, _STEPS, [first, last]):
        of_step = calls.get((row.log, row.step))
        if row.kind == "data" or not of_step:
            continue
        if row.log != log:
            log, before_ns = row.log, None
        yield row, of_step, facts(row.log), before_ns
        before_ns = max(before_ns or 0, _span(row, of_step, before_ns)[1])


def _facts(trace: Trace, first: int, last: int, step: int | None = None) -> Callable[[int], _Facts]:
    """Return the facts about each log, with the launches of all of its steps or of one."""

    def by_log(statement: str, *further: int | None) -> dict[int, list[sql.Row]]:
        found: defaultdict[int, list[sql.Row]] = defaultdict(list)
        for row in sql.rows(trace, statement, [first, last, *further]):
            found[row[0]].append(row[1:])
        return found

    launches = by_log(_LAUNCHES, step)
    compiles, waits, optimizers, breaks = map(by_log, (_COMPILES, _WAITS, _OPTIMIZERS, _BREAKS))
    on_device, reads = by_log(_ON_DEVICE), by_log(_READS)

    @cache
    def of_log(log: int) -> _Facts:
        compiling = Periods((start, start + lasts) for start, lasts in compiles.get(log, ()))
        waiting = {thread: found.outside_of(compiling) for thread, found in _by_thread(waits.get(log, ())).items()}
        stepping = {
            thread: found.outside_of(compiling).outside_of(waiting.get(thread, _NEVER))
            for thread, found in _by_thread(optimizers.get(log, ())).items()
        }
        return _Facts(
            {step: total or 0 for step, total in launches.get(log, ())},
            compiling,
            waiting,
            stepping,
            {(row[0], row[1]): SourceLine(row[2], row[3], row[4] or "", row[5] or "")
             for row in breaks.get(log, ()) if row[2]},
            log in on_device,
            log in reads,
        )  # fmt: skip

    return of_log


def _by_thread(rows: Iterable[sql.Row]) -> dict[int, Periods]:
    """Return the periods of each thread from its number, start and duration."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for thread, start, lasts in rows:
        found[thread].append((start, start + lasts))
    return {thread: Periods(spans) for thread, spans in found.items()}


class Gap(NamedTuple):
    """Time between calls of graphs in which nothing was compiled, no optimizer stepped, and nothing waited for data."""

    kind: PartKind
    """``break``, ``between``, ``after`` or ``outside``."""
    line: SourceLine | None
    """The line of the graph break."""
    before: int | None
    """The graph whose call ended before; None if there was none."""
    after: int | None
    """The graph whose call began after; None if that is in a later step."""
    duration_ns: int
    calls: tuple[int | None, int | None]
    """The numbers of these calls in the log."""
    span: tuple[int, int] = (0, 0)
    """Begin and end (ns), with what is left out of the duration."""


def _split(row: _Step, calls: Sequence[_Call], facts: _Facts, before_ns: int | None) -> StepSplit:
    start, end = _span(row, calls, before_ns)
    sums: Counter[tuple[PartKind, SourceLine | None]] = Counter()
    in_calls = replays = 0
    at = start
    for call in calls:
        inside = max(0, call.end_ns - max(at, call.start_ns))
        in_calls += inside
        replays += inside if call.is_replay else 0
        at = max(at, call.end_ns)
    for gap_start, gap_end, gap in _gaps(calls, facts, start, end):
        sums[gap.kind, gap.line] += gap.duration_ns
        for kind, periods in _apart(calls, facts):
            sums[kind, None] += periods.within(gap_start, gap_end)
    launches = min(in_calls, max(0, facts.launch_ns.get(row.step, 0) + replays))
    sums["launching" if facts.on_device else "kernels", None] += launches
    sums["reading" if facts.reads else "host", None] += in_calls - launches
    split = StepSplit(row.log, row.step, start, end, in_order(sums))
    return replace(split, verdict=step_verdict(split))


def _span(row: _Step, calls: Sequence[_Call], before_ns: int | None) -> tuple[int, int]:
    """Return start and end of a step that begins with the end of the step before, `before_ns`."""
    first, last = calls[0].start_ns, max(call.end_ns for call in calls)
    start = min(first, row.start_ns if before_ns is None or before_ns > first else before_ns)
    return start, max(start, last, (row.end_ns or 0) if row.by_what in _ENDS_LATER else 0)


def _gaps(
    calls: Sequence[_Call], facts: _Facts, start: int, end: int, previous: _Call | None = None
) -> Iterator[tuple[int, int, Gap]]:
    """Yield start, end and facts of the time before, between and after the calls of a step from `start` to `end`.

    `previous` is the last call of the step before.
    """
    apart = _apart(calls, facts)
    before: _Call | None = None
    at = start
    for call in (*calls, None):
        until = call.start_ns if call is not None else end
        if until > at:
            line = _break(call, facts) if call is not None and before is not None else None
            kind: PartKind = "break" if line else "outside" if before is None else "between" if call else "after"
            left = until - at - sum(periods.within(at, until) for _, periods in apart)
            ended = before or previous
            numbers = ended and ended.number, call and call.number
            yield at, until, Gap(kind, line, ended and ended.graph, call and call.graph, left, numbers, (at, until))
        if call is not None and call.end_ns >= at:
            before, at = call, call.end_ns


def _apart(calls: Sequence[_Call], facts: _Facts) -> tuple[tuple[PartKind, Periods], ...]:
    """Return the periods that are taken out of the gaps of a step."""
    thread = calls[0].thread
    return (
        ("compile", facts.compiles),
        ("data", facts.waits.get(thread, _NEVER)),
        ("optimizer", facts.optimizers.get(thread, _NEVER)),
    )


def _break(call: _Call, facts: _Facts) -> SourceLine | None:
    """Return the line of the graph break after which a call resumes; None for other calls."""
    found = _RESUMED.search(call.function or "")
    if found is None or call.file is None:
        return None
    place = call.file, int(found[1])
    return facts.breaks.get(place) or SourceLine(*place, "", "")
