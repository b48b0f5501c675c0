"""Queries the compiled calls that a backward pass runs again together because one eager checkpoint is around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.identity import FIRST_CALL
from stepscope.viewer.memory.rows import RunPeak
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_CALLS = 3
"""Minimum number of calls that run again together."""
AGAIN = """SELECT log, unnest(from_json(call, '["BIGINT"]')) AS local_call FROM calls_in_backward"""
_STEP = """
    SELECT c.step FROM survivors v JOIN calls c ON c.call = v.call
    WHERE v.log = $log AND v.device = $device AND v.made AND v.met_by_backward
      AND v.born_ns <= $ns AND (v.died_ns IS NULL OR v.died_ns > $ns)
    GROUP BY c.step ORDER BY sum(v.storage_bytes) DESC LIMIT 1
"""
# A graph that saves nothing for a backward graph is not recomputed for one.
_RAN = f"""
    WITH again AS ({AGAIN}), saved AS (
        SELECT call, sum(storage_bytes) FILTER (born_ns <= $ns AND (died_ns IS NULL OR died_ns > $ns)) AS alive_bytes
        FROM survivors WHERE log = $log AND device = $device AND made AND met_by_backward GROUP BY call
    )
    SELECT c.call, c.graph, split_part(g.compile_id, '/', 1) AS frame,
           CASE WHEN g.phase = 'backward' THEN 'backward' WHEN a.local_call IS NULL THEN 'first'
                ELSE 'again' END AS kind,
           coalesce(starts_with(o.function, 'torch_dynamo_resume_in_'), false) AS is_resumed,
           coalesce(s.alive_bytes, 0)::BIGINT AS alive_bytes
    FROM calls c JOIN graphs g ON g.graph = c.graph AND g.compile_id IS NOT NULL
    LEFT JOIN compiles o ON o.log = g.log AND o.compile_id = g.compile_id
    LEFT JOIN again a ON a.log = c.log AND a.local_call = c.local_call LEFT JOIN saved s ON s.call = c.call
    WHERE c.log = $log AND c.step = $step AND c.parent IS NULL AND (kind <> 'again' OR s.call IS NOT NULL)
    ORDER BY c.start_ns
"""
_SHARED = f"""
    WITH used AS (
        SELECT m.call, {FIRST_CALL} AS by_call, coalesce(s.met_as, s.storage) AS by_storage
        FROM measured_calls m JOIN layout_storages s ON s.layout = m.layout AND s.kind = 'input' AND s.storage_bytes > 0
        WHERE m.call IN (SELECT unnest($1::BIGINT[] || $2::BIGINT[]))
    )
    SELECT a.call, f.call, count(*) FROM used a JOIN used f USING (by_call, by_storage)
    WHERE list_contains($1, a.call) AND list_contains($2, f.call) GROUP BY ALL
"""
_STEPS = f"""
    WITH again AS ({AGAIN}), ran AS (
        SELECT c.step, a.local_call IS NOT NULL AS is_again, list_contains($2, c.graph) AS is_wanted,
               count(*) FILTER (a.local_call IS NULL) OVER (ORDER BY c.start_ns) AS run
        FROM calls c LEFT JOIN again a ON a.log = c.log AND a.local_call = c.local_call
        WHERE c.log = $1 AND c.parent IS NULL
    )
    SELECT count(DISTINCT step) FROM (
        SELECT step FROM ran WHERE is_again AND is_wanted GROUP BY step, run HAVING count(*) >= $3
    )
"""
_LINES = """
    SELECT DISTINCT ON (s.file, s.line) s.time_unix_ns, s.file, s.line, s.function, s.code
    FROM call_sites s JOIN graphs g ON g.log = s.log AND g.local_graph = s.graph
    WHERE list_contains($1, g.graph) AND s.file IS NOT NULL ORDER BY s.file, s.line, s.time_unix_ns
"""


class _Ran(NamedTuple):
    """A call that is not nested in another one."""

    call: int
    graph: int
    frame: str
    kind: Literal["first", "again", "backward"]
    is_resumed: bool
    """Whether it goes on after a graph break."""
    alive_bytes: int
    """What it saved for the backward pass and is alive at the peak."""


@dataclass(frozen=True)
class RecomputedRun:
    """Calls that run again together, and what they save is alive at a peak."""

    sizes: list[int]
    """What each of the calls has alive at the peak, the most first. A call that goes on after a graph break is a part
    of the one before."""
    steps: int
    """Number of the steps in which `LEAST_CALLS` or more calls of these graphs run again together."""
    lines: list[SourceLine]
    """The lines that make the calls in the forward pass, or run the backward pass, in order of time."""


def recomputed_run(trace: Trace, peak: RunPeak) -> RecomputedRun | None:
    """Return the calls whose recomputation one eager checkpoint joins, if it is proven that they are calls of the
    forward pass that run again in the same order, and most of those that run again in their backward pass."""
    at = {"log": peak.log, "device": peak.device, "ns": peak.ns}
    step = (
        next((step for (step,) in sql.rows(trace, _STEP, at)), None)
        if sql.has_rows(trace, "calls_in_backward")
        else None
    )
    if step is None:
        return None
    firsts, runs = _backward_pass(sql.records(_Ran, trace, _RAN, {**at, "step": step}))
    run = max(runs, key=lambda calls: sum(one.alive_bytes for one in calls), default=[])
    run = _repeated(trace, firsts, run) if 2 * len(run) > sum(map(len, runs)) else []
    calls = _blocks(run)
    if len(calls) < LEAST_CALLS:
        return None
    graphs = {one.graph for one in run}
    steps = sql.number(trace, _STEPS, [peak.log, sorted(graphs), LEAST_CALLS])
    frames = {one.frame for one in run}
    called = sorted(graphs | {one.graph for one in firsts if one.frame in frames})
    return RecomputedRun(sorted(calls, reverse=True), steps, _lines(trace, called))


def _backward_pass(ran: Sequence[_Ran]) -> tuple[list[_Ran], list[list[_Ran]]]:
    """Return the calls of the forward pass whose backward pass has most memory at the peak, and those that run again
    there: a list for each time that no backward graph runs between them."""
    frames = {one.frame for one in ran if one.kind == "again" and one.alive_bytes}
    passes: list[tuple[list[_Ran], list[list[_Ran]]]] = [([], [])]
    before = "first"
    for one in ran:
        if one.kind == "first" and one.frame not in frames:
            continue
        if one.kind == "first" != before:
            passes.append(([], []))
        firsts, runs = passes[-1]
        if one.kind == "first":
            firsts.append(one)
        elif one.kind == "again":
            if before != "again":
                runs.append([])
            runs[-1].append(one)
        before = one.kind
    return max(passes, key=lambda found: sum(one.alive_bytes for run in found[1] for one in run))


def _repeated(trace: Trace, firsts: Sequence[_Ran], run: Sequence[_Ran]) -> list[_Ran]:
    """Return the calls of a run that share inputs, such as parameters, with calls of the forward pass, or none of them
    if those with which they share most are not as many calls in the same order: derivatives are computed in the reverse
    order."""
    places = {one.call: place for place, one in enumerate(firsts)}
    frames = {one.call: one.frame for one in (*firsts, *run)}
    best: defaultdict[int, tuple[int, int]] = defaultdict(lambda: (0, -1))
    for again, first, count in sql.rows(trace, _SHARED, [[one.call for one in run], list(places)]):
        if frames[again] == frames[first]:
            best[again] = max(best[again], (count, places[first]))
    found = [one for one in run if one.call in best and one.alive_bytes]
    order = [best[one.call][1] for one in found]
    return found if all(before < after for before, after in pairwise(order)) else []


def _blocks(run: Sequence[_Ran]) -> list[int]:
    """Return what each compiled function has alive, including the part after its graph breaks."""
    sizes: list[int] = []
    for one in run:
        if one.is_resumed and sizes:
            sizes[-1] += one.alive_bytes
        else:
            sizes.append(one.alive_bytes)
    return sizes


def _lines(trace: Trace, graphs: Sequence[int]) -> list[SourceLine]:
    found = sorted(sql.rows(trace, _LINES, [graphs]))
    return [SourceLine(file, line, function or "", code or "") for _, file, line, function, code in found]
