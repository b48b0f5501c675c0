"""Queries the graph breaks of a run by cause: their places, number and cost."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.tracebacks import user_frames

_EXPLANATION = re.compile(r"^\s*Explanation:\s*(.*?)(?=^\s*Hint:|^\s*Developer debug context:|\Z)", re.M | re.S)
_HINT = re.compile(r"^\s*Hint:\s*(.*?)(?=^\s*Hint:|^\s*Developer debug context:|\n\s*\n|\Z)", re.M | re.S)
_CONTEXT = re.compile(r"^\s*Developer debug context:\s*(.*?)(?=\n\s*\n|\Z)", re.M | re.S)
_URL = re.compile(r"For more details about this graph break, please visit:\s*(https?://[^\s\"'<>]+)")
_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_FRAME = "regexp_replace(e.compile_id, '/[^/]*$', '')"
_MOST_COMPILES = 12
_MOST_PLACES = 40

_CAUSES = f"""
    SELECT e.cause, count(*) AS breaks, count(DISTINCT (e.log, e.compile_id)) AS compiles,
           count(DISTINCT (e.log, {_FRAME})) AS frames, min(e.record) AS first_record, arg_min(e.text, e.record) AS text
    FROM compile_events e WHERE e.kind = 'graph_break' AND ($log IS NULL OR e.log = $log)
    GROUP BY e.cause ORDER BY breaks DESC, first_record LIMIT $limit OFFSET $offset
"""
_EVENTS = f"""
    SELECT e.cause, e.log, e.compile_id, {_FRAME} AS frame_id, e.record, coalesce(e.file, c.file) AS file,
           coalesce(e.line, c.line) AS line, coalesce(e.function, c.function) AS function, e.code, c.frame, c.attempts,
           c.duration_ns, c.status
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
    """Causes, most frequent first."""
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


Compiles = dict[tuple[int, str], float]
Resumes = dict[tuple[int, str | None, str, int], tuple[int, int | None]]


def graph_breaks(trace: Trace, log: int | None = None, offset: int = 0, limit: int = 20) -> GraphBreaks:
    """Return a page of the causes, most frequent first."""
    match = {"log": log}
    found = sql.named(trace, _CAUSES, {**match, "limit": limit, "offset": offset})
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
    resumes = _resumes(trace)
    places = {cause: _places(events[cause], resumes) for cause in causes}
    shown = [place.compiles[0].record for of in places.values() for place in of[:_MOST_PLACES]]
    texts = {
        record: payload.decode("utf-8", "replace")
        for record, payload in trace.payloads(sorted({*shown, *(row["first_record"] for row in found)})).items()
    }
    rows = []
    for row in found:
        cause, text = row["cause"], row.pop("text")
        raw = texts.get(row["first_record"], "").split("\nUser code traceback:", 1)[0] or text
        rows.append(
            BreakCause(
                **row,
                explanation=_first(_EXPLANATION, raw),
                hints=[hint.strip() for hint in _HINT.findall(raw)],
                context=_first(_CONTEXT, raw),
                url=_first(_URL, raw),
                cost=_cost(events[cause], places[cause], thrown),
                places=[
                    replace(place, stack=user_frames(texts.get(place.compiles[0].record, "")))
                    for place in places[cause][:_MOST_PLACES]
                ],
                places_left=max(0, len(places[cause]) - _MOST_PLACES),
            )
        )
    return GraphBreaks(*[rows, *totals, offset, limit])


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1].strip() if found else None


def _resumes(trace: Trace) -> Resumes:
    """Return the number and time of the compiles of resume functions, by (log, file, function, line) of the break."""
    rows = sql.rows(
        trace,
        "SELECT log, file, function, count(*), sum(duration_ns)::BIGINT FROM compiles"
        " WHERE starts_with(function, 'torch_dynamo_resume_in_') GROUP BY ALL",
    )
    found: Resumes = {}
    for log, file, function, count, total in rows:
        match = _RESUME.match(function)
        if match:
            found[log, file, match[1], int(match[2])] = count, total
    return found


def _places(events: list[_Event], resumes: Resumes) -> list[BreakPlace]:
    by_place: defaultdict[tuple[str | None, int | None], list[_Event]] = defaultdict(list)
    for event in events:
        by_place[event.file, event.line].append(event)
    places = [_place(file, line, group, resumes) for (file, line), group in by_place.items()]
    return sorted(places, key=lambda place: -place.breaks)


def _place(file: str | None, line: int | None, group: list[_Event], resumes: Resumes) -> BreakPlace:
    first = group[0]
    source, function = None, (first.function or "").rsplit(".", 1)[-1]
    resumed = _RESUME.match(function)
    if file and line is not None:
        source = SourceLine(file, line, first.function or "", next((one.code for one in group if one.code), None) or "")
    found = [
        resumes[key]
        for key in ((log, file, resumed[1] if resumed else function, line or 0) for log in {one.log for one in group})
        if key in resumes
    ]
    times = [total for _, total in found if total is not None]
    return BreakPlace(
        source=source,
        stack=[],
        breaks=len(group),
        frames=list(dict.fromkeys(one.frame or f"frame {one.frame_id}" for one in group)),
        compiles=[BreakCompile(one.log, one.compile_id, one.record) for one in group[:_MOST_COMPILES]],
        resume_functions=sum(count for count, _ in found),
        resume_ns=sum(times) if times else None,
    )


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
