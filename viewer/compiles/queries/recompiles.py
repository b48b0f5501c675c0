"""Queries the recompiles of a run by frame: failed guards, their values, dynamic dimensions, and limits reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stepscope.viewer.compiles.queries.compile_steps import steps_of_compiles
from stepscope.viewer.compiles.queries.guard_advice import advice
from stepscope.viewer.compiles.queries.guard_text import FailedGuard, failed_guards, same_source
from stepscope.viewer.compiles.queries.slowdown import Slowdown, StepFrames
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_FRAME_ID = "regexp_replace(compile_id, '/[^/]*$', '')"
_MOST_RECOMPILES = 200
_FRAMES = f"""
    SELECT log, {_FRAME_ID} AS frame_id
    FROM (SELECT *, bool_or(kind = 'recompile_limit') OVER (PARTITION BY log, compile_id) AS refused
          FROM compile_events) e
    LEFT JOIN compiles c USING (log, compile_id)
    WHERE kind IN ('recompile', 'recompile_limit') AND ($log IS NULL OR log = $log)
      AND ($frame IS NULL OR {_FRAME_ID} = $frame)
    GROUP BY log, frame_id
    HAVING $text IS NULL OR bool_or(contains(
        lower(concat_ws(' ', c.frame, c.function, c.file, e.cause, e.text)), lower($text)))
"""
ORDERS = {
    "recompiles": "count(*) FILTER (e.kind = 'recompile' AND NOT e.refused)",
    "time": "sum(c.duration_ns) FILTER (e.kind = 'recompile' AND NOT e.refused)",
    "name": "min(c.frame)",
    "first": "min(e.record)",
}
"""The expressions by which frames can be sorted."""
_TOTALS = f"""
    WITH events AS (
        SELECT e.log, e.kind, {_FRAME_ID.replace("compile_id", "e.compile_id")} AS frame_id, c.duration_ns,
               bool_or(e.kind = 'recompile_limit') OVER (PARTITION BY e.log, e.compile_id) AS refused
        FROM compile_events e JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id
        WHERE e.kind IN ('recompile', 'recompile_limit') AND ($log IS NULL OR e.log = $log)
    )
    SELECT count(DISTINCT (log, frame_id)) AS total_frames,
           count(*) FILTER (kind = 'recompile' AND NOT refused) AS total_recompiles,
           (sum(duration_ns) FILTER (kind = 'recompile' AND NOT refused))::BIGINT AS total_ns,
           count(DISTINCT (log, frame_id)) FILTER (kind = 'recompile_limit') AS fell_back
    FROM events WHERE $frame IS NULL OR frame_id = $frame
"""
_OF_FRAMES = f"""
    SELECT f.log, f.frame_id, {{columns}} FROM {{table}} t
    JOIN (SELECT unnest($logs) AS log, unnest($frames) AS frame_id) f
    ON f.log = t.log AND f.frame_id = {_FRAME_ID.replace("compile_id", "t.compile_id")}
"""
_COMPILES = _OF_FRAMES.format(
    table="compiles",
    columns="t.compile_id, t.frame, t.file, t.line, t.function, t.duration_ns, t.status",
)
_EVENTS = _OF_FRAMES.format(table="compile_events", columns="t.compile_id, t.kind, t.record, t.cause, t.text")
_SYMBOLS = _OF_FRAMES.format(table="symbols", columns="t.compile_id, t.symbol, t.source")


@dataclass(frozen=True)
class GuardHistory:
    """The values of one guarded expression in successive compiles."""

    source: str
    values: list[tuple[str, str]]
    """(compile id, value it was compiled for), in the order of compiles."""
    failures: int
    dynamic_since: str | None
    """First compile with a symbol for the expression."""
    is_dynamic: bool | None
    """None if the log has no records of symbols."""
    code: str | None
    hint: str | None
    advice: str | None
    """A change of the program that would avoid these recompiles; None if none is known."""


@dataclass(frozen=True)
class Recompile:
    compile_id: str
    record: int
    guards: list[FailedGuard]
    made_dynamic: list[str]
    """Sources for which this compile has a symbol and no earlier compile of the frame had one."""
    came: str | None
    """Value that the first guard saw, if this or a later reason names it."""
    duration_ns: int | None
    status: str
    step: int | None
    """Step in which it began, or after which, if it began between two steps."""


@dataclass(frozen=True)
class FellBack:
    compile_id: str
    record: int
    text: str
    raised: bool
    """Whether the call raised an error, as with `fullgraph=True`."""


@dataclass(frozen=True)
class RecompiledFrame:
    log: int
    frame_id: str
    name: str
    source: SourceLine | None
    recompiles: int
    """Number of recompiles, without those refused by the limit."""
    recompile_ns: int | None
    first_ns: int | None
    """Duration of the frame's first compile."""
    fell_back: FellBack | None
    refused: int
    """Number of compiles refused by the limit."""
    guards: list[GuardHistory]
    rows: list[Recompile]
    steps: dict[str, int]
    """Step of each compile that began in a step."""
    slowdown: Slowdown


@dataclass(frozen=True)
class Recompiles:
    frames: list[RecompiledFrame]
    matching_frames: int
    total_frames: int
    total_recompiles: int
    total_ns: int | None
    fell_back: int
    """Number of frames that reached the limit."""
    offset: int
    limit: int


class _Compile(NamedTuple):
    log: int
    frame_id: str
    compile_id: str
    frame: str | None
    file: str | None
    line: int | None
    function: str | None
    duration_ns: int | None
    status: str


class _Event(NamedTuple):
    log: int
    frame_id: str
    compile_id: str
    kind: str
    record: int
    cause: str
    text: str


@dataclass
class _Frame:
    compiles: list[_Compile]
    events: list[_Event]
    symbols: defaultdict[str, dict[str, str]]


def recompiles(
    trace: Trace,
    log: int | None = None,
    offset: int = 0,
    limit: int = 20,
    frame: str | None = None,
    text: str | None = None,
    sort: str = "recompiles",
) -> Recompiles:
    """Return a page of the frames with this text, by default the one with the most recompiles first; with `frame`, only
    that one. The totals are those of all frames with any text."""
    match = {"log": log, "frame": frame, "text": text}
    order = sql.order_by(ORDERS, sort, sort in ("recompiles", "time"), ORDERS["first"])
    page = f"{_FRAMES} ORDER BY {order} LIMIT $limit OFFSET $offset"
    found = sql.rows(trace, page, {**match, "limit": limit, "offset": offset})
    matching = sql.rows(trace, f"SELECT count(*) FROM ({_FRAMES})", match)[0][0]
    (totals,) = sql.named(trace, _TOTALS, {"log": log, "frame": frame})
    has_symbols = bool(sql.number(trace, "SELECT EXISTS (SELECT 1 FROM symbols)"))
    frames = _read(trace, found) if found else {}
    known = [(row.log, row.compile_id) for one in frames.values() for row in one.compiles]
    steps, step_frames = steps_of_compiles(trace, known), StepFrames(trace)
    rows = [_frame(*key, one, has_symbols, steps, step_frames) for key, one in frames.items()]
    return Recompiles(rows, matching, **totals, offset=offset, limit=limit)


def _read(trace: Trace, found: Sequence[sql.Row]) -> dict[tuple[int, str], _Frame]:
    """Return frames, given as (log, frame id), in their order."""
    asked = {"logs": [log for log, _ in found], "frames": [frame_id for _, frame_id in found]}
    frames = {(log, frame_id): _Frame([], [], defaultdict(dict)) for log, frame_id in found}
    for row in sql.records(_Compile, trace, f"{_COMPILES} ORDER BY t.start_unix_ns, t.compile", asked):
        frames[row.log, row.frame_id].compiles.append(row)
    events = f"{_EVENTS} WHERE t.kind IN ('recompile', 'recompile_limit') ORDER BY t.record"
    for event in sql.records(_Event, trace, events, asked):
        frames[event.log, event.frame_id].events.append(event)
    for log, frame_id, compile_id, symbol, source in sql.rows(trace, _SYMBOLS, asked):
        if source and symbol:
            frames[log, frame_id].symbols[compile_id][same_source(source)] = symbol
    return frames


def _frame(
    log: int,
    frame_id: str,
    frame: _Frame,
    has_symbols: bool,
    steps: Mapping[tuple[int, str], int],
    step_frames: StepFrames,
) -> RecompiledFrame:
    compiles = {row.compile_id: row for row in frame.compiles}
    limits = [event for event in frame.events if event.kind == "recompile_limit"]
    refused = {event.compile_id for event in limits}
    rows, before = [], set(frame.symbols.get(frame.compiles[0].compile_id, ()))
    for event in frame.events[:_MOST_RECOMPILES]:
        if event.kind != "recompile":
            continue
        symbols = frame.symbols.get(event.compile_id, {})
        compiled = compiles.get(event.compile_id)
        rows.append(
            Recompile(
                compile_id=event.compile_id,
                record=event.record,
                guards=failed_guards(event.text),
                made_dynamic=[source for source in symbols if source not in before],
                came=None,
                duration_ns=compiled.duration_ns if compiled else None,
                status=compiled.status if compiled else "ok",
                step=steps.get((log, event.compile_id)),
            )
        )
        before |= set(symbols)
    histories = _histories(rows, [one.compile_id for one in frame.compiles], frame, has_symbols)
    known = {history.source: dict(history.values) for history in histories}
    rows = [replace(row, came=known[row.guards[0].source].get(row.compile_id)) for row in rows]
    times = [row.duration_ns for row in rows if row.duration_ns is not None and row.compile_id not in refused]
    first = frame.compiles[0]
    done_in = [row.step for row in rows if row.step is not None and row.compile_id not in refused]
    limit_step = steps.get((log, limits[0].compile_id)) if limits else None
    return RecompiledFrame(
        log=log,
        frame_id=frame_id,
        name=next((one.frame for one in frame.compiles if one.frame), None) or f"frame {frame_id}",
        source=next((SourceLine(*place, "") for place in map(_place, frame.compiles) if place), None),
        recompiles=sum(event.kind == "recompile" and event.compile_id not in refused for event in frame.events),
        recompile_ns=sum(times) if times else None,
        first_ns=first.duration_ns,
        fell_back=_fell_back(limits[0], compiles) if limits else None,
        refused=len(refused),
        guards=histories,
        rows=rows,
        steps={name: steps[log, name] for name in compiles if (log, name) in steps},
        slowdown=step_frames.slowdown(log, frame_id, done_in, limit_step),
    )


def _place(row: _Compile) -> tuple[str, int, str] | None:
    return (row.file, row.line, row.function or "") if row.file and row.line else None


def _fell_back(event: _Event, compiles: dict[str, _Compile]) -> FellBack:
    compiled = compiles.get(event.compile_id)
    raised = compiled is not None and compiled.status == "failed"
    return FellBack(event.compile_id, event.record, event.text or event.cause, raised)


def _histories(rows: list[Recompile], order: list[str], frame: _Frame, has_symbols: bool) -> list[GuardHistory]:
    """Return the value of each source per compile: what its guard expects, or what the recompiling call passed."""
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    examples: dict[str, FailedGuard] = {}
    failures: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        for index, guard in enumerate(row.guards):
            failures[guard.source] += index == 0
            if guard.source not in examples or (examples[guard.source].code is None and guard.code):
                examples[guard.source] = guard
            if guard.against and guard.expected is not None:
                values[guard.source][guard.against] = guard.expected
            if guard.actual is not None:
                values[guard.source][row.compile_id] = guard.actual
    place = {compile_id: index for index, compile_id in enumerate(order)}
    histories = []
    for source, example in examples.items():
        since = next((compile_id for compile_id in order if source in frame.symbols.get(compile_id, ())), None)
        seen = sorted(values[source].items(), key=lambda item: place.get(item[0], len(place)))
        is_dynamic = None if not has_symbols else since is not None
        told = advice(source, [value for _, value in seen], example.guard)
        histories.append(
            GuardHistory(source, seen, failures[source], since, is_dynamic, example.code, example.hint, told)
        )
    return sorted(histories, key=lambda history: -history.failures)
