"""Queries the time between calls of graphs in typical steps, by the places between which it passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from stepscope.viewer.speed.queries.graph_places import GraphPlace, graph_places
from stepscope.viewer.speed.queries.runs import run_splits, typical_steps
from stepscope.viewer.speed.queries.splits import Gap, step_gaps
from stepscope.viewer.speed.rows import PartKind, RunSplit
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename

LEAST_SHARE, LEAST_NS = 0.25, 2_000_000
"""Minimum of the time that is outside of compiled code in a typical step, below which its places are not looked up."""
_KINDS: tuple[PartKind, ...] = ("between", "outside", "after")
_FALLBACKS = """
    WITH given_up AS (
        SELECT f.log, f.compile_id, f.start_unix_ns - l.unix_ns + l.monotonic_ns AS at_ns
        FROM compiles f JOIN logs l ON l.log = f.log
        WHERE f.log = $1 AND f.status = 'fallback' AND l.monotonic_ns IS NOT NULL
    ), outermost AS (SELECT log, graph, start_ns FROM calls WHERE depth = 0), first AS (
        SELECT arg_min(graph, start_ns) AS graph FROM outermost WHERE log = $1
    )
    SELECT f.compile_id, c.graph, CASE WHEN c.log IS NULL THEN (SELECT graph FROM first) END
    FROM given_up f ASOF LEFT JOIN outermost c ON c.log = f.log AND c.start_ns < f.at_ns
    UNION ALL
    SELECT e.compile_id, g.graph, NULL
    FROM compile_events e JOIN graphs g ON g.log = e.log AND g.compile_id = e.compile_id
    WHERE e.log = $1 AND e.kind = 'graph_break' AND contains(e.cause, 'skipping the rest of the function')
      AND g.phase IS DISTINCT FROM 'backward'
"""
_MEASURED = """
    WITH outermost AS (
        SELECT local_call, thread, start_ns, start_ns + duration_ns AS end_ns,
               lead(local_call) OVER (ORDER BY start_ns) AS following
        FROM calls WHERE log = $log AND depth = 0 AND duration_ns IS NOT NULL
    ), measured AS (
        SELECT unnest(from_json(before, '["BIGINT"]')) AS before, unnest(from_json(call, '["BIGINT"]')) AS call,
               unnest(from_json(own_ns, '["BIGINT"]')) AS own_ns, unnest(from_json(cpu_ns, '["BIGINT"]')) AS cpu_ns
        FROM call_gaps WHERE log = $log
    ), known AS (
        SELECT m.before, m.call, b.following = m.call AS is_following, m.own_ns,
               a.start_ns - b.end_ns - m.cpu_ns AS idle_ns, coalesce(sum(w.duration_ns), 0) AS data_ns
        FROM measured m JOIN outermost b ON b.local_call = m.before JOIN outermost a ON a.local_call = m.call
        LEFT JOIN data_waits w
            ON w.log = $log AND w.thread = a.thread AND w.start_ns >= b.end_ns AND w.start_ns < a.start_ns
        GROUP BY ALL
    )
    SELECT before, call, is_following, own_ns, greatest(0, idle_ns - data_ns)::BIGINT FROM known
"""

_OWN = """
    WITH measured AS (
        SELECT unnest(from_json(call, '["BIGINT"]')) AS call, unnest(from_json(own_ns, '["BIGINT"]')) AS own_ns
        FROM call_gaps WHERE log = $log
    )
    SELECT c.step, sum(m.own_ns)::BIGINT FROM measured m JOIN calls c ON c.log = $log AND c.local_call = m.call
    WHERE list_contains($steps, c.step) GROUP BY c.step
"""
_LOST_IN_CALLS = """
    WITH measured AS (
        SELECT unnest(from_json(before, '["BIGINT"]')) AS before,
               unnest(from_json(before_cpu_ns, '["BIGINT"]')) AS before_cpu_ns
        FROM call_gaps WHERE log = $1 AND before_cpu_ns <> '[]'
    )
    SELECT sum(greatest(0, c.duration_ns - m.before_cpu_ns))::BIGINT FROM measured m
    JOIN calls c ON c.log = $1 AND c.local_call = m.before WHERE list_contains($2, c.step)
"""
_COMPUTED = """
    WITH steps AS (SELECT unnest($logs) AS log, unnest($steps) AS step), measured AS (
        SELECT log, unnest(from_json(before, '["BIGINT"]')) AS before, unnest(from_json(call, '["BIGINT"]')) AS call,
               unnest(from_json(cpu_ns, '["BIGINT"]')) AS cpu_ns
        FROM call_gaps
    )
    SELECT b.log, b.step, b.graph, a.graph, sum(m.cpu_ns)::BIGINT FROM measured m
    JOIN calls b ON b.log = m.log AND b.local_call = m.before JOIN calls a ON a.log = m.log AND a.local_call = m.call
    JOIN steps s ON s.log = b.log AND s.step = b.step GROUP BY ALL
"""


class GapCost(NamedTuple):
    """Time between the same two calls, or between one and the begin or end of the step, in the typical steps."""

    kind: PartKind
    before: GraphPlace | None
    after: GraphPlace | None
    part_ns: int
    """Mean per step, without the recorder's own time."""
    own_ns: int
    """Mean of the recorder's own time in the gaps."""
    computed_ns: int | None
    """Mean of the part of `part_ns` for which the thread computed, at least; None if unknown. Else it waited, or the
    machine ran other threads."""
    times: int
    """How often this is in a step."""
    fallbacks: list[str]
    """Compiles that were given up when a function was called there, or before its end, so that Python runs it."""
    waited_ns: int = 0
    """Mean of the time that `part_ns` leaves out because the thread did not compute."""
    spans: Sequence[tuple[int, int]] = ()
    """Begin and end of each of these gaps (ns)."""
    core_ns: int = 0
    """Mean of the time in which the thread waits for a core of the machine in calls and in all gaps of a step but those
    between requests; 0 if it is unknown."""

    @property
    def key(self) -> Hashable:
        """The same for gaps between the same calls, in all logs."""
        return self.kind, self.before, self.after

    @property
    def where(self) -> str:
        """Return text like ``between the compiled call at train.py:7 and the backward pass at train.py:9``."""
        before, after = (place.text if place else None for place in (self.before, self.after))
        if self.kind == "after":
            return f"between {before or 'the last graph'} and the end of the step"
        if self.kind == "outside":
            first = after or "the first graph"
            if before == after and before is not None:
                return f"between {before} and the same call of the next step"
            return f"between {before} of the step before and {first}" if before else f"before {first}"
        if self.is_of_loop:
            calls = "two graphs of the backward pass" if self.is_in_backward else "one call and the next"
            return f"between {calls} at {self.place}"
        return f"between {before} and {after}"

    @property
    def is_of_loop(self) -> bool:
        """Whether the gap is between calls that follow each other at one place, as in a loop."""
        before, after = (place.text if place else None for place in (self.before, self.after))
        return self.kind not in ("after", "outside") and before == after

    @property
    def is_in_backward(self) -> bool:
        """Whether a graph of a backward pass follows, which autograd calls."""
        return self.after is not None and self.after.phase == "backward"

    @property
    def place(self) -> str:
        source = self.before.source if self.before else None
        return f"{basename(source.file)}:{source.line}" if source else "the same place"


def logs_of_call_steps(trace: Trace) -> set[int]:
    """Return the logs in which each call of inference is a step, as in a server."""
    return {log for (log,) in sql.rows(trace, "SELECT DISTINCT log FROM steps WHERE by_what = 'call'")}


def logs_with_fallbacks(trace: Trace) -> set[int]:
    """Return the logs in which a compile was given up, so that Python runs a function."""
    return {log for (log,) in sql.rows(trace, "SELECT DISTINCT log FROM compiles WHERE status = 'fallback'")}


def gap_costs(trace: Trace) -> dict[int, list[GapCost]]:
    """Return the gaps of each log that spends much of its typical steps outside of compiled code, the longest first."""
    return trace.once(_gap_costs)


def _gap_costs(trace: Trace) -> dict[int, list[GapCost]]:
    steps = typical_steps(trace)
    much = [run.log for run in run_splits(trace) if _is_much(run)]
    return {log: costs_of_gaps(trace, log, steps[log].steps) for log in much}


def own_in_gaps(trace: Trace, log: int, steps: Sequence[int]) -> dict[int, int]:
    """Return what the recorder itself took before and between the calls of each of these steps of a log, by step."""
    return dict(sql.rows(trace, _OWN, {"log": log, "steps": list(steps)}))


def lost_in_calls(trace: Trace, log: int, steps: Sequence[int]) -> int | None:
    """Return for how long (ns) a typical one of some steps is in calls in which its thread does not compute, because it
    waits for other threads, for a device or for a core of the machine; None if this is unknown."""
    lost_ns = sql.number(trace, _LOST_IN_CALLS, [log, list(steps)])
    return round(lost_ns / len(steps)) if lost_ns is not None and steps else None


def computed_in_gaps(trace: Trace, steps: Mapping[int, Sequence[int]]) -> dict[int, dict[tuple[int, int], list[int]]]:
    """Return for how long the thread computes after calls of one graph and before calls of another one in each of these
    steps, by log and by the two graphs. The time after the last call of a step belongs to this step."""
    pairs = [(log, step) for log, of_log in steps.items() for step in of_log]
    asked = {"logs": [log for log, _ in pairs], "steps": [step for _, step in pairs]}
    found: defaultdict[int, dict[tuple[int, int], list[int]]] = defaultdict(dict)
    place = {pair: at for of_log in steps.items() for at, pair in enumerate((of_log[0], step) for step in of_log[1])}
    for log, step, before, after, cpu_ns in sql.rows(trace, _COMPUTED, asked):
        times = found[log].setdefault((before, after), [0] * len(steps[log]))
        times[place[log, step]] = cpu_ns
    return found


def _is_much(run: RunSplit) -> bool:
    spent = sum(part.duration_ns for part in run.parts if part.kind in _KINDS)
    return spent >= max(LEAST_NS, LEAST_SHARE * run.typical_ns)


def costs_of_gaps(trace: Trace, log: int, steps: Sequence[int]) -> list[GapCost]:
    """Return the gaps in some steps of a log, the longest first."""
    found: defaultdict[tuple[PartKind, GraphPlace | None, GraphPlace | None], list[Gap]] = defaultdict(list)
    gaps = [gap for gap in step_gaps(trace, log, steps) if gap.kind in _KINDS]
    places = graph_places(trace, {graph for gap in gaps for graph in (gap.before, gap.after) if graph is not None})
    for gap in gaps:
        found[gap.kind, places.get(gap.before), places.get(gap.after)].append(gap)
    fallbacks = sql.rows(trace, _FALLBACKS, [log]) if found else []
    measured = _measured(trace, log) if found else {}
    costs = []
    for key, same in found.items():
        spent = sum(gap.duration_ns for gap in same) / len(steps)
        known = [(gap.duration_ns, measured.get(gap.calls)) for gap in same]
        own = min(spent, sum(one.own_ns for _, one in known if one) / len(steps))
        computed = [max(0, wall_ns - one.own_ns - one.lost_ns) for wall_ns, one in known if one]
        computed_ns = round(sum(computed) / len(steps)) if len(computed) == len(same) else None
        graphs = {gap.before for gap in same}
        begun = {gap.after for gap in same if gap.kind == "outside"}
        given_up = [
            name for name, before, first in fallbacks if (before in graphs if first is None else first in begun)
        ]
        times = round(len(same) / len(steps))
        spans = [gap.span for gap in same]
        costs.append(GapCost(*key, round(spent - own), round(own), computed_ns, times, given_up, spans=spans))
    return sorted(costs, key=lambda cost: -cost.part_ns)


class _Measured(NamedTuple):
    own_ns: int
    """The recorder's own time."""
    lost_ns: int
    """The time for which the thread neither computed nor waited for data."""


def _measured(trace: Trace, log: int) -> dict[tuple[int | None, int | None], _Measured]:
    """Return what was measured between calls that follow one another, by their numbers. Without the second call, this
    is the time from the first one to the end of its step; the recorder's time is that of the whole gap only."""
    found: dict[tuple[int | None, int | None], _Measured] = {}
    for before, call, is_following, own_ns, lost_ns in sql.rows(trace, _MEASURED, {"log": log}):
        found[before, call] = _Measured(own_ns, lost_ns)
        if is_following:
            found[before, None] = _Measured(0, lost_ns)
    return found
