"""Queries the rows of a Chrome trace, streamed so that memory does not grow with the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stepscope.viewer.graphs.queries.graphs import graph_label
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_FETCHED = 10_000
_FIRST_MONOTONIC = """
    SELECT log, min(ns) FROM (
        SELECT log, start_ns AS ns FROM calls UNION ALL SELECT log, start_ns FROM launches
        UNION ALL SELECT log, start_ns FROM steps UNION ALL SELECT log, ns FROM live_bytes
        UNION ALL SELECT log, start_ns FROM device_work
    ) GROUP BY log
"""
_EVENTS = """
    SELECT e.log, r.time_unix_ns, e.kind, e.compile_id, e.cause, e.file, e.line, e.record
    FROM compile_events e JOIN records r ON r.record = e.record JOIN logs l ON l.log = e.log
    WHERE l.utc_offset_s IS NOT NULL AND r.time_unix_ns IS NOT NULL
"""
_FIRST_UNIX = f"""
    SELECT log, min(ns) FROM (
        SELECT log, start_unix_ns AS ns FROM spans UNION ALL SELECT log, time_unix_ns FROM ({_EVENTS})
    ) GROUP BY log
"""
# HUGEINT is needed because sums of times in a damaged log may exceed BIGINT.
_STEPS = """
    WITH seen AS (
        SELECT step, max(ns) AS last_ns FROM (
            SELECT step, start_ns::HUGEINT + greatest(duration_ns, 0) AS ns FROM calls WHERE log = $1
            UNION ALL SELECT step, start_ns::HUGEINT + coalesce(duration_ns, 0) FROM launches WHERE log = $1
        ) GROUP BY step
    )
    SELECT s.step, s.kind, s.start_ns, coalesce(s.end_ns, greatest(n.last_ns, s.start_ns), s.start_ns)::HUGEINT,
           s.end_ns IS NOT NULL
    FROM steps s LEFT JOIN seen n ON n.step = s.step
    WHERE s.log = $1 AND s.start_ns IS NOT NULL ORDER BY s.start_ns, s.step
"""
_SPANS = """
    SELECT thread, name, compile_id, start_unix_ns, duration_ns FROM spans WHERE log = $1
    ORDER BY thread, start_unix_ns, depth, duration_ns DESC, name, compile_id
"""
# Rows without times are left out. All launches of a replayed CUDA graph have the times of the replay, which its call
# already shows on the host thread.
_HOST = """
    SELECT * EXCLUDE (depth) FROM (
        SELECT c.thread, c.start_ns, nullif(greatest(c.duration_ns, -1), -1) AS duration_ns, c.call, NULL AS launch,
               NULL AS site, c.step, c.graph, g.compile_id, g.phase, c.function, c.state, c.launches, c.depth,
               c.state = 'replayed' AND c.call IN (
                   SELECT call FROM launches WHERE log = $1 AND device_duration_ns IS NOT NULL
               ) AS is_timed
        FROM calls c LEFT JOIN graphs g ON g.graph = c.graph WHERE c.log = $1
          AND c.state <> 'printed'
        UNION ALL
        SELECT l.thread, l.start_ns, l.duration_ns, l.call, l.launch, l.site, l.step, c.graph, NULL, NULL, NULL,
               c.state, NULL, c.depth, l.device_duration_ns IS NOT NULL
        FROM launches l JOIN calls c ON c.call = l.call WHERE l.log = $1 AND c.state <> 'replayed'
          AND (l.duration_ns IS NOT NULL OR NOT l.returned)
    ) ORDER BY thread, start_ns, duration_ns DESC NULLS LAST, depth, launch NULLS FIRST, call
"""
_UNSEEN = "l.launch NOT IN (SELECT launch FROM device_work WHERE log = l.log AND launch IS NOT NULL)"
"""Condition of launches whose work PyTorch's profiler did not see, so that its start is not known."""
_DEVICE = f"""
    SELECT l.thread, l.start_ns, l.start_ns + coalesce(l.duration_ns, 0)::HUGEINT, l.device_duration_ns, l.launch,
           l.site, l.step, l.call, c.state = 'replayed'
    FROM launches l JOIN calls c ON c.call = l.call WHERE l.log = $1 AND l.device_duration_ns IS NOT NULL
      AND {_UNSEEN} ORDER BY l.start_ns, l.launch
"""
_WORK = """
    SELECT w.device, w.stream, w.start_ns, w.duration_ns, w.name, w.kind, w.step, w.call, w.launch, l.site,
           coalesce(c.state = 'replayed', false)
    FROM device_work w LEFT JOIN launches l ON l.launch = w.launch LEFT JOIN calls c ON c.call = w.call
    WHERE w.log = $1 ORDER BY w.device, w.stream, w.start_ns, w.duration_ns DESC
"""
_LIVE = "SELECT device, ns, live_bytes FROM live_bytes WHERE log = $1 ORDER BY device, ns, rowid"
_THREADS = {
    "steps": "SELECT 0 FROM steps WHERE log = ? AND start_ns IS NOT NULL LIMIT 1",
    "spans": "SELECT DISTINCT thread FROM spans WHERE log = ? ORDER BY 1",
    "calls": "SELECT thread FROM calls WHERE log = ? GROUP BY 1 ORDER BY min(start_ns), 1",
}


_DEVICE_THREADS = f"""
    SELECT thread FROM launches l WHERE log = ? AND device_duration_ns IS NOT NULL AND NOT list_contains(?, site)
      AND {_UNSEEN} GROUP BY 1 ORDER BY min(start_ns), 1
"""


class ExportedClock(NamedTuple):
    log: int
    rank: int | None
    pid: int | None
    path: str
    offset_ns: int
    """Difference to add to monotonic times for Unix times in ns."""
    is_known: bool
    """False if the log lacks its clock, so that its first event is placed at the time of its first record."""
    first_unix_ns: int | None
    """Unix time of the first event of the log in the export."""


class StepSpan(NamedTuple):
    step: int
    kind: str | None
    start_ns: int
    end_ns: int
    """End of the step, or of the last event in a step without an end."""
    has_end: bool


class ExportedCompileSpan(NamedTuple):
    thread: int
    name: str
    compile_id: str | None
    start_unix_ns: int
    duration_ns: int


class CompileInstant(NamedTuple):
    time_unix_ns: int
    kind: str
    compile_id: str | None
    cause: str | None
    file: str | None
    line: int | None
    record: int


class HostSpan(NamedTuple):
    """A graph call or one of its launches."""

    thread: int
    start_ns: int
    duration_ns: int | None
    """None if it did not return."""
    call: int
    launch: int | None
    site: int | None
    step: int
    graph: int
    label: str | None
    state: str
    launches: int | None
    is_timed: bool
    """Whether the time of the launch on the device is known, or of a launch of a replayed CUDA graph."""


class DeviceSpan(NamedTuple):
    thread: int
    host_start_ns: int
    host_end_ns: int
    duration_ns: int
    launch: int
    site: int
    step: int
    call: int
    is_replayed: bool


class ProfiledSpan(NamedTuple):
    """A piece of work as PyTorch's profiler saw it; all that is unknown is None."""

    device: int
    stream: int
    start_ns: int
    duration_ns: int
    name: str
    kind: str
    step: int | None
    call: int | None
    launch: int | None
    site: int | None
    is_replayed: bool


class SiteName(NamedTuple):
    kernel: str
    kind: str
    source: str | None
    """Innermost model line, such as ``/src/model.py:12``."""
    modules: list[str]
    """Paths of the model's modules, such as ``Sequential.2 (GELU)``."""


def log_clocks(trace: Trace) -> list[ExportedClock]:
    """Return the clock of each log."""
    monotonic: dict[int, int] = dict(sql.rows(trace, _FIRST_MONOTONIC))
    unix: dict[int, int] = dict(sql.rows(trace, _FIRST_UNIX))
    found = sql.rows(
        trace,
        "SELECT log, rank, pid, path, monotonic_ns, unix_ns, start_unix_ns FROM logs ORDER BY log",
    )
    clocks = []
    for log, rank, pid, path, monotonic_ns, unix_ns, start_unix_ns in found:
        first, has_clock = monotonic.get(log), monotonic_ns is not None and unix_ns is not None
        offset = unix_ns - monotonic_ns if has_clock else (unix.get(log) or start_unix_ns or 0) - (first or 0)
        firsts = [ns for ns in (unix.get(log), None if first is None else first + offset) if ns is not None]
        known = has_clock or first is None
        clocks.append(ExportedClock(log, rank, pid, path, offset, known, min(firsts, default=None)))
    return clocks


def threads(trace: Trace, log: int, kernels: Sequence[int]) -> dict[str, list[int]]:
    """Return the threads that have `steps` (as thread 0), `spans`, `calls`, and `device` work of sites that are not in
    `kernels`."""
    found = {what: [thread for (thread,) in sql.rows(trace, query, [log])] for what, query in _THREADS.items()}
    return {**found, "device": [thread for (thread,) in sql.rows(trace, _DEVICE_THREADS, [log, kernels])]}


def timed_launches(trace: Trace, log: int) -> tuple[int, int]:
    """Return the number of launches whose time on the device is known, and of all."""
    query = "SELECT count(device_duration_ns), count(*) FROM launches WHERE log = ?"
    ((timed, launches),) = sql.rows(trace, query, [log])
    return timed, launches


def steps(trace: Trace, log: int) -> Iterator[StepSpan]:
    yield from (StepSpan(*row) for row in _stream(trace, _STEPS, log))


def compile_spans(trace: Trace, log: int) -> Iterator[ExportedCompileSpan]:
    yield from (ExportedCompileSpan(*row) for row in _stream(trace, _SPANS, log))


def compile_instants(trace: Trace, log: int) -> Iterator[CompileInstant]:
    """Yield the events of compiles, if the UTC offset of the log's times is known."""
    query = f"SELECT * EXCLUDE (log) FROM ({_EVENTS}) WHERE log = $1 ORDER BY record, kind"
    yield from (CompileInstant(*row) for row in _stream(trace, query, log))


def host_spans(trace: Trace, log: int) -> Iterator[HostSpan]:
    """Yield calls and launches by thread and start, with enclosing spans before the nested ones."""
    for row in _stream(trace, _HOST, log):
        *about, graph, compile_id, phase, function, state, count, is_timed = row
        label = None
        if function is not None:
            label = graph_label(graph, compile_id, phase)
            label = label if function == "call" else f"{label} · {function}"
        yield HostSpan._make([*about, graph, label, state, count, is_timed])


def device_spans(trace: Trace, log: int) -> Iterator[DeviceSpan]:
    """Yield launches whose time on the device is known but not their start there, in the order in which the host began
    them."""
    yield from (DeviceSpan(*row) for row in _stream(trace, _DEVICE, log))


def profiled_spans(trace: Trace, log: int) -> Iterator[ProfiledSpan]:
    """Yield the work that PyTorch's profiler saw by stream, in the order in which it ran."""
    yield from (ProfiledSpan(*row) for row in _stream(trace, _WORK, log))


def profiled_streams(trace: Trace, log: int) -> list[tuple[int, int]]:
    """Return (device, stream) of all work that PyTorch's profiler saw."""
    return sql.rows(trace, "SELECT DISTINCT device, stream FROM device_work WHERE log = ? ORDER BY ALL", [log])


def live_bytes(trace: Trace, log: int) -> Iterator[tuple[str, int, int]]:
    """Yield (device, monotonic ns, bytes)."""
    yield from ((device, ns, size) for device, ns, size in _stream(trace, _LIVE, log))


def site_names(trace: Trace, log: int) -> dict[int, SiteName]:
    found = _stream(trace, "SELECT site, kernel, kind, stacks, modules FROM sites WHERE log = $1", log)
    return {
        site: SiteName(kernel, kind, _source(stacks), sql.json_value(modules) or [])
        for site, kernel, kind, stacks, modules in found
    }


def _source(stacks: str | None) -> str | None:
    frames = next((stack for stack in sql.json_value(stacks) or [] if stack), None)
    return SourceLine(**frames[-1]).place if frames else None


def _stream(trace: Trace, query: str, log: int) -> Iterator[sql.Row]:
    cursor = trace.cursor().execute(query, [log])
    while rows := cursor.fetchmany(_FETCHED):
        yield from rows
