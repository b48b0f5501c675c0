"""Queries the graph breaks of a run by cause: their places, number and cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from stepscope.viewer.compiles.queries.break_costs import (
    Place,
    Resumed,
    function_of,
    held_buffers,
    resumed_functions,
)
from stepscope.viewer.compiles.queries.break_text import context_in, explanation_in, hints_in, url_in
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_breaks import HeldBuffer
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.tracebacks import user_frames

_FRAME = "regexp_replace(e.compile_id, '/[^/]*$', '')"
_MOST_COMPILES = 12
_MOST_PLACES = 40

_CAUSES = f"""
    SELECT e.cause, count(*) AS breaks, count(DISTINCT (e.log, e.compile_id)) AS compiles,
           count(DISTINCT (e.log, {_FRAME})) AS frames, min(e.record) AS first_record, arg_min(e.text, e.record) AS text
    FROM compile_events e LEFT JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id
    WHERE e.kind = 'graph_break' AND ($log IS NULL OR e.log = $log)
    GROUP BY e.cause
    HAVING $text IS NULL OR bool_or(contains(
        lower(concat_ws(' ', e.cause, e.text, e.file, e.function, e.code, c.frame)), lower($text)))
"""
ORDERS = {
    "breaks": "breaks",
    "compiles": "compiles",
    "frames": "frames",
    "cause": "e.cause",
    "first": "first_record",
}
"""The expressions by which causes can be sorted."""
_FROM_THE_MOST = ("breaks", "compiles", "frames")
_EVENTS = f"""
    SELECT e.cause, e.log, e.compile_id, {_FRAME} AS frame_id, e.record, coalesce(e.file, c.file) AS file,
           coalesce(e.line, c.line) AS line, coalesce(nullif(e.function, ''), c.function) AS function, e.code, c.frame,
           c.attempts, c.duration_ns, c.status, c.file AS frame_file, c.function AS frame_function
    FROM compile_events e JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id
    WHERE e.kind = 'graph_break' AND ($log IS NULL OR e.log = $log) AND list_contains($causes, e.cause)
    ORDER BY e.log, e.record
"""
_BEFORE_RESTART = """
    SELECT r.log, r.compile_id, max(CASE m.name WHEN 'dynamo_compile_time_before_restart_us' THEN m.number * 1e3
                                                ELSE m.number * 1e9 END)
    FROM metrics m JOIN records r ON r.record = m.record
    WHERE m.name IN ('dynamo_compile_time_before_restart_us', 'dynamo_time_before_restart_s')
    GROUP BY r.log, r.compile_id
"""


@dataclass(frozen=True)
class BreakCompile:
    """One graph break: the compile in which it happened, and the record that reports it."""

    log: int
    compile_id: str
    record: int


@dataclass(frozen=True)
class BreakPlace:
    source: SourceLine | None
    stack: list[SourceLine]
    """Program frames at the first break, outermost first; empty if the record has none."""
    breaks: int
    frames: list[str]
    compiles: list[BreakCompile]
    """First compiles that broke here, at most 12."""
    resume_functions: int
    """Number of compiles of the resume functions after the break."""
    resume_ns: int | None
    is_asked: bool
    """Whether the address names a break of this place."""
    calls: int
    """Calls of the resume functions after the break."""
    launches: int
    """Launches of these calls."""
    calls_ns: int | None
    """Host time of these calls."""
    between_ns: int | None
    """Median time from the end of the call before the break to the beginning of the resumed call."""
    held: list[HeldBuffer] | None
    """Buffers that the break keeps alive after their last use, largest first; None if storages were not tracked."""
    held_bytes: int | None
    """Bytes of those that the compiled region before the break allocated."""
    perhaps_held_bytes: int | None
    """Bytes of the others, which the caller may hold anyway."""


@dataclass(frozen=True)
class BreakCost:
    """The cost of one cause: restarts, compile time, and the compiles of resume functions."""

    restarts: int
    before_restart_ns: int | None
    """Compile time discarded by restarts for any reason."""
    compile_ns: int | None
    """Total compile time of the compiles that broke."""
    resume_functions: int
    resume_ns: int | None
    fallbacks: int
    """Number of compiles that fell back to running the whole function in Python."""


@dataclass(frozen=True)
class BreakCause:
    cause: str
    breaks: int
    compiles: int
    frames: int
    explanation: str | None
    hints: list[str]
    context: str | None
    url: str | None
    first_record: int
    cost: BreakCost
    places: list[BreakPlace]
    places_left: int


@dataclass(frozen=True)
class GraphBreaks:
    causes: list[BreakCause]
    matching_causes: int
    total_causes: int
    total_breaks: int
    total_compiles: int
    offset: int
    limit: int


@dataclass(frozen=True)
class _Event:
    cause: str
    log: int
    compile_id: str
    frame_id: str
    record: int
    file: str | None
    line: int | None
    function: str | None
    code: str | None
    frame: str | None
    attempts: int
    duration_ns: int | None
    status: str
    frame_file: str | None
    frame_function: str | None


Compiles = dict[tuple[int, str], float]


@dataclass(frozen=True)
class _Costs:
    """What is known about the resumed functions of the whole run."""

    asked: int | None
    resumed: dict[Place, Resumed]
    held: dict[tuple[int, str], list[HeldBuffer]] | None


def is_break(trace: Trace, record: int) -> bool:
    """Return whether a record reports a graph break."""
    known = "SELECT count(*) FROM compile_events WHERE kind = 'graph_break' AND record = ?"
    return bool(sql.number(trace, known, [record]))


def graph_breaks(
    trace: Trace,
    log: int | None = None,
    offset: int = 0,
    limit: int = 20,
    asked: int | None = None,
    text: str | None = None,
    sort: str = "breaks",
) -> GraphBreaks:
    """Return a page of the causes with this text, by default the most frequent first; the cause and place of record
    `asked` come before all. The other totals are those of all causes."""
    match = {"log": log}
    order = sql.order_by(ORDERS, sort, sort in _FROM_THE_MOST, "first_record")
    page = f"{_CAUSES} ORDER BY count(*) FILTER (e.record = $asked) DESC, {order} LIMIT $limit OFFSET $offset"
    found = sql.named(trace, page, {**match, "text": text, "limit": limit, "offset": offset, "asked": asked})
    matching = sql.rows(trace, f"SELECT count(*) FROM ({_CAUSES})", {**match, "text": text})[0][0]
    totals = sql.rows(
        trace,
        "SELECT count(DISTINCT cause), count(*), count(DISTINCT (log, compile_id)) FROM compile_events"
        " WHERE kind = 'graph_break' AND ($log IS NULL OR log = $log)",
        match,
    )[0]
    causes = [row["cause"] for row in found]
    events: defaultdict[str, list[_Event]] = defaultdict(list)
    for event in sql.records(_Event, trace, _EVENTS, {**match, "causes": causes}) if causes else ():
        events[event.cause].append(event)
    thrown = {(one, of): ns for one, of, ns in sql.rows(trace, _BEFORE_RESTART)} if causes else {}
    costs = _Costs(asked, resumed_functions(trace), held_buffers(trace)) if causes else _Costs(None, {}, None)
    groups = {cause: _by_place(events[cause], asked) for cause in causes}
    shown = [group[0].record for of in groups.values() for group in of[:_MOST_PLACES]]
    texts = {
        record: payload.decode("utf-8", "replace")
        for record, payload in trace.payloads(sorted({*shown, *(row["first_record"] for row in found)})).items()
    }
    places = {
        cause: [_place(group, user_frames(texts.get(group[0].record, "")), costs) for group in of]
        for cause, of in groups.items()
    }
    rows = []
    for row in found:
        cause, text = row["cause"], row.pop("text")
        raw = texts.get(row["first_record"], "").split("\nUser code traceback:", 1)[0] or text
        rows.append(
            BreakCause(
                **row,
                explanation=explanation_in(raw),
                hints=hints_in(raw),
                context=context_in(raw),
                url=url_in(raw),
                cost=_cost(events[cause], places[cause], thrown),
                places=places[cause][:_MOST_PLACES],
                places_left=max(0, len(places[cause]) - _MOST_PLACES),
            )
        )
    return GraphBreaks(*[rows, matching, *totals, offset, limit])


def _by_place(events: list[_Event], asked: int | None) -> list[list[_Event]]:
    """Return the events of each place, that of the record `asked` first, then those with most breaks."""
    by_place: defaultdict[tuple[str | None, int | None], list[_Event]] = defaultdict(list)
    for event in events:
        by_place[event.file, event.line].append(event)
    return sorted(by_place.values(), key=lambda group: (not _has(group, asked), -len(group)))


def _has(group: list[_Event], record: int | None) -> bool:
    return any(one.record == record for one in group)


def _resumed(group: list[_Event], stack: list[SourceLine], costs: _Costs) -> dict[Place, Resumed]:
    """Return what was resumed after the breaks of a place; `stack` is that of the first. A break in a function that
    Dynamo inlined resumes the compiled function too, after the line that called the other one."""
    found: dict[Place, Resumed] = {}
    for event in group:
        function = function_of(event.frame_function)
        calls = [
            line.line for line in stack if line.file == event.frame_file and function_of(line.function) == function
        ]
        for line in (event.line, *(calls[-1:] if event is group[0] else ())):
            place = event.log, event.frame_file, function, line or 0
            if place in costs.resumed:
                found[place] = costs.resumed[place]
    return found


def _place(group: list[_Event], stack: list[SourceLine], costs: _Costs) -> BreakPlace:
    first, source = group[0], None
    if first.file and first.line is not None:
        code = next((one.code for one in group if one.code), None) or ""
        source = SourceLine(first.file, first.line, first.function or "", code)
    resumed = _resumed(group, stack, costs)
    held = _held(resumed, costs)
    between = [one.between_ns for one in resumed.values() if one.between_ns is not None]
    return BreakPlace(
        source=source,
        stack=stack,
        breaks=len(group),
        frames=list(dict.fromkeys(one.frame or f"frame {one.frame_id}" for one in group)),
        compiles=[BreakCompile(one.log, one.compile_id, one.record) for one in group[:_MOST_COMPILES]],
        resume_functions=sum(one.compiles for one in resumed.values()),
        resume_ns=_sum([one.compile_ns for one in resumed.values()]),
        is_asked=_has(group, costs.asked),
        calls=sum(one.calls for one in resumed.values()),
        launches=sum(one.launches for one in resumed.values()),
        calls_ns=_sum([one.calls_ns for one in resumed.values()]),
        between_ns=max(between, default=None),
        held=held,
        held_bytes=_bytes(held, True),
        perhaps_held_bytes=_bytes(held, False),
    )


def _held(resumed: dict[Place, Resumed], costs: _Costs) -> list[HeldBuffer] | None:
    if costs.held is None:
        return None
    found = [
        held
        for (log, *_), one in resumed.items()
        for name in one.compile_ids
        for held in costs.held.get((log, name), ())
    ]
    return sorted(found, key=lambda one: -one.storage_bytes)


def _bytes(held: list[HeldBuffer] | None, is_made: bool) -> int | None:
    if held is None:
        return None
    return sum(one.storage_bytes for one in held if (one.made_by == "compiled region") == is_made)


def _sum(times: list[int | None]) -> int | None:
    known = [time for time in times if time is not None]
    return sum(known) if known else None


def _cost(events: list[_Event], places: list[BreakPlace], thrown: Compiles) -> BreakCost:
    compiles = {(event.log, event.compile_id): event for event in events}
    lost = [thrown[key] for key in compiles if thrown.get(key) is not None]
    spent = [event.duration_ns for event in compiles.values() if event.duration_ns is not None]
    resumed = [place.resume_ns for place in places if place.resume_ns is not None]
    return BreakCost(
        restarts=sum(event.attempts - 1 for event in compiles.values()),
        before_restart_ns=round(sum(lost)) if lost else None,
        compile_ns=sum(spent) if spent else None,
        resume_functions=sum(place.resume_functions for place in places),
        resume_ns=sum(resumed) if resumed else None,
        fallbacks=sum(event.status == "fallback" for event in compiles.values()),
    )
