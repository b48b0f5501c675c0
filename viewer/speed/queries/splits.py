"""Splits the time of steps into disjoint parts.

The time of a step reaches from the end of the step before to its own end, which is the step of its optimizer or its
last call. It is divided at the outermost calls of compiled graphs: launches and the rest of a call; the gap before a
call that resumes after a graph break, which belongs to the line of the break; other gaps; and compiles and waiting for
data, which are taken out of the gaps."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import list_runs, list_steps
from stepscope.viewer.overview.rows import StepRow
from stepscope.viewer.speed.queries.periods import Periods
from stepscope.viewer.speed.queries.verdict import run_verdict, step_verdict
from stepscope.viewer.speed.rows import PART_NAMES, Part, PartKind, RunSplit, StepSplit
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_TYPICAL = 4
"""Minimum number of steps of which only the middle half by duration is typical; of fewer, all are."""
_ENDS_LATER = ("optimizer", "user")
"""What ends a step later than its last call."""
_RESUMED = re.compile(r"torch_dynamo_resume_in_.+_at_(\d+)$")
_CALLS = """
    SELECT c.log, c.step, c.start_ns, c.start_ns + c.duration_ns AS end_ns, c.state = 'replayed' AS is_replay,
           CASE WHEN g.phase IS DISTINCT FROM 'backward' THEN f.file END AS file, f.function
    FROM calls c LEFT JOIN graphs g ON g.graph = c.graph
    LEFT JOIN compiles f ON f.log = g.log AND f.compile_id = g.compile_id
    WHERE c.depth = 0 AND c.duration_ns IS NOT NULL AND c.state <> 'printed' AND ($log IS NULL OR c.log = $log)
    ORDER BY c.log, c.start_ns
"""
_LAUNCHES = """
    SELECT l.log, l.step, sum(l.duration_ns)::BIGINT FROM launches l JOIN sites s ON s.site = l.site
    JOIN calls c ON c.call = l.call
    WHERE s.kind <> 'subgraph' AND c.state <> 'replayed' AND ($log IS NULL OR l.log = $log) GROUP BY ALL
"""
_COMPILES = """
    SELECT s.log, s.start_unix_ns - l.unix_ns + l.monotonic_ns, s.duration_ns FROM spans s JOIN logs l ON l.log = s.log
    WHERE s.depth = 0 AND l.monotonic_ns IS NOT NULL AND ($log IS NULL OR s.log = $log)
"""
_WAITS = """
    SELECT start_ns, start_ns + duration_ns FROM data_waits WHERE $log IS NULL OR log = $log
"""
_BREAKS = """
    SELECT e.log, e.file, e.line, any_value(e.function), any_value(e.code) FROM compile_events e
    WHERE e.kind = 'graph_break' AND e.line IS NOT NULL AND ($log IS NULL OR e.log = $log) GROUP BY ALL
"""
_ON_DEVICE = "SELECT DISTINCT log FROM sites WHERE kind IN ('triton', 'user_triton')"


class _Call(NamedTuple):
    log: int
    step: int
    start_ns: int
    end_ns: int
    is_replay: bool
    file: str | None
    function: str | None


class _Facts(NamedTuple):
    """What is known about the time of one log."""

    log: int
    launch_ns: Mapping[int, int]
    """Host time of the launches of each step."""
    compiles: Periods
    data: Periods
    breaks: Mapping[tuple[str, int], SourceLine]
    on_device: bool


def step_splits(trace: Trace, log: int) -> dict[int, StepSplit]:
    """Return the split of each step of a log that has calls, by step."""
    return trace.once(_step_splits, log, most=16)


def step_split(trace: Trace, log: int, step: int) -> StepSplit | None:
    return step_splits(trace, log).get(step)


def run_splits(trace: Trace) -> list[RunSplit]:
    """Return the split of each log that has steps with calls."""
    return trace.once(_run_splits)


def _run_splits(trace: Trace) -> list[RunSplit]:
    return [
        run_split(run.log, run.rank, list(splits.values()))
        for run in list_runs(trace)
        if not run.is_left_out and (splits := step_splits(trace, run.log))
    ]


def run_split(log: int, rank: int | None, splits: Sequence[StepSplit]) -> RunSplit:
    """Return the split of the steps of one log, of which there is at least one."""
    typical = typical_steps(splits)
    found = _mean(typical)
    total, compiling = sum(one.duration_ns for one in splits), sum(one.of("compile") for one in splits)
    mean_ns = sum(part.duration_ns for part in found)
    of_run = RunSplit(log, rank, len(splits), total, compiling, len(typical), mean_ns, found, None)
    return replace(of_run, verdict=run_verdict(of_run))


def typical_steps(splits: Sequence[StepSplit]) -> list[StepSplit]:
    """Return the steps that compiled nothing, without the fastest and the slowest quarter; if all steps compiled, all
    of them. The first step is left out, since it may warm up."""
    quiet = [one for one in splits[1:] if not one.of("compile")] or list(splits)
    if len(quiet) < LEAST_TYPICAL:
        return quiet
    quiet.sort(key=lambda one: one.duration_ns)
    cut = len(quiet) // 4
    return quiet[cut : len(quiet) - cut]


def _mean(splits: Sequence[StepSplit]) -> list[Part]:
    sums: Counter[tuple[PartKind, SourceLine | None]] = Counter()
    for one in splits:
        for part in one.parts:
            sums[part.kind, part.source] += part.duration_ns
    return _parts({key: round(value / len(splits)) for key, value in sums.items()})


def _step_splits(trace: Trace, log: int) -> dict[int, StepSplit]:
    facts = _facts(trace, log)
    calls: defaultdict[int, list[_Call]] = defaultdict(list)
    for call in sql.records(_Call, trace, _CALLS, {"log": log}):
        calls[call.step].append(call)
    found: dict[int, StepSplit] = {}
    before_ns = None
    for row in sorted(list_steps(trace, log), key=lambda row: row.start_ns):
        of_step = calls.get(row.step)
        if row.kind == "data" or not of_step:
            continue
        found[row.step] = split = _split(row, of_step, facts, before_ns)
        before_ns = max(before_ns or 0, split.end_ns)
    return found


def _facts(trace: Trace, log: int) -> _Facts:
    of_log = {"log": log}
    launches = {step: total or 0 for _, step, total in sql.rows(trace, _LAUNCHES, of_log)}
    compiles = Periods((start, start + lasts) for _, start, lasts in sql.rows(trace, _COMPILES, of_log))
    data = Periods(sql.rows(trace, _WAITS, of_log)).outside_of(compiles)
    breaks = {(row[1], row[2]): SourceLine(row[1], row[2], row[3] or "", row[4] or "") for row in
              sql.rows(trace, _BREAKS, of_log) if row[1]}  # fmt: skip
    on_device = log in {found for (found,) in sql.rows(trace, _ON_DEVICE)}
    return _Facts(log, launches, compiles, data, breaks, on_device)


def _split(row: StepRow, calls: Sequence[_Call], facts: _Facts, before_ns: int | None) -> StepSplit:
    first = calls[0].start_ns
    start = row.start_ns if before_ns is None or before_ns > first else before_ns
    start = min(start, first)
    sums: Counter[tuple[PartKind, SourceLine | None]] = Counter()
    in_calls = replays = 0
    at = start
    for number, call in enumerate(calls):
        _gap(sums, ("between", None) if number else ("outside", None), _break(call, facts) if number else None,
             (at, call.start_ns), facts)  # fmt: skip
        inside = max(0, call.end_ns - max(at, call.start_ns))
        in_calls += inside
        replays += inside if call.is_replay else 0
        at = max(at, call.end_ns)
    end = max(at, row.end_ns or 0) if row.by in _ENDS_LATER else at
    _gap(sums, ("after", None), None, (at, end), facts)
    launches = min(in_calls, facts.launch_ns.get(row.step, 0) + replays)
    sums["launching" if facts.on_device else "kernels", None] += launches
    sums["host", None] += in_calls - launches
    split = StepSplit(row.log, row.step, start, end, _parts(sums))
    return replace(split, verdict=step_verdict(split))


def _gap(
    sums: Counter[tuple[PartKind, SourceLine | None]],
    kind: tuple[PartKind, None],
    line: SourceLine | None,
    span: tuple[int, int],
    facts: _Facts,
) -> None:
    """Add the time between two calls to its parts."""
    start, end = span
    if end <= start:
        return
    compiling, waiting = facts.compiles.within(start, end), facts.data.within(start, end)
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


def _parts(sums: Mapping[tuple[PartKind, SourceLine | None], int]) -> list[Part]:
    order = list(PART_NAMES)
    found: Iterable[Part] = (Part(kind, value, line) for (kind, line), value in sums.items() if value > 0)
    return sorted(found, key=lambda part: (order.index(part.kind), -part.duration_ns))
