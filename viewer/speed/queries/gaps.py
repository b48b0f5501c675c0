"""Queries the time between calls of graphs in typical steps, by the places between which it passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.speed.queries.graph_places import GraphPlace, graph_places
from stepscope.viewer.speed.queries.runs import run_splits, typical_steps
from stepscope.viewer.speed.queries.splits import Gap, step_gaps
from stepscope.viewer.speed.rows import PartKind, RunSplit
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_SHARE, LEAST_NS = 0.25, 2_000_000
"""Minimum of the time that is outside of compiled code in a typical step, below which its places are not looked up."""
_KINDS: tuple[PartKind, ...] = ("between", "outside", "after")
_FALLBACKS = """
    WITH given_up AS (
        SELECT f.log, f.compile_id, f.start_unix_ns - l.unix_ns + l.monotonic_ns AS at_ns
        FROM compiles f JOIN logs l ON l.log = f.log
        WHERE f.log = ? AND f.status = 'fallback' AND l.monotonic_ns IS NOT NULL
    ), outermost AS (SELECT log, graph, start_ns FROM calls WHERE depth = 0)
    SELECT f.compile_id, c.graph FROM given_up f ASOF LEFT JOIN outermost c ON c.log = f.log AND c.start_ns < f.at_ns
"""


_OWN = """
    SELECT o.log, (max(o.hook_ns) - coalesce(max(o.stats_ns), 0))::DOUBLE
           / (SELECT count(*) FROM calls c WHERE c.log = o.log AND c.depth = 0)
    FROM overhead o WHERE o.hook_ns > 0 GROUP BY o.log
"""


class GapCost(NamedTuple):
    """Time between the same two calls, or between one and the begin or end of the step, in the typical steps."""

    kind: PartKind
    before: GraphPlace | None
    after: GraphPlace | None
    part_ns: int
    """Mean per step, without the recorder's own time."""
    own_ns: int
    """Mean of the recorder's own time in the gaps: that of a call for each."""
    times: int
    """How often this is in a step."""
    fallbacks: list[str]
    """Compiles that were given up when a function was called there, so that Python runs it."""


def logs_of_call_steps(trace: Trace) -> set[int]:
    """Return the logs in which each call of inference is a step, as in a server."""
    return {log for (log,) in sql.rows(trace, "SELECT DISTINCT log FROM steps WHERE by_what = 'call'")}


def gap_costs(trace: Trace) -> dict[int, list[GapCost]]:
    """Return the gaps of each log that spends much of its typical steps outside of compiled code, the longest first."""
    return trace.once(_gap_costs)


def _gap_costs(trace: Trace) -> dict[int, list[GapCost]]:
    steps = typical_steps(trace)
    much = [run.log for run in run_splits(trace) if _is_much(run)]
    own: dict[int, float] = dict(sql.rows(trace, _OWN)) if much else {}
    return {log: _costs(trace, log, steps[log].steps, own.get(log, 0.0)) for log in much}


def _is_much(run: RunSplit) -> bool:
    spent = sum(part.duration_ns for part in run.parts if part.kind in _KINDS)
    return spent >= max(LEAST_NS, LEAST_SHARE * run.typical_ns)


def _costs(trace: Trace, log: int, steps: Sequence[int], own_ns: float) -> list[GapCost]:
    found: defaultdict[tuple[PartKind, GraphPlace | None, GraphPlace | None], list[Gap]] = defaultdict(list)
    gaps = [gap for gap in step_gaps(trace, log, steps) if gap.kind in _KINDS]
    places = graph_places(trace, {graph for gap in gaps for graph in (gap.before, gap.after) if graph is not None})
    for gap in gaps:
        found[gap.kind, places.get(gap.before), places.get(gap.after)].append(gap)
    fallbacks = sql.rows(trace, _FALLBACKS, [log]) if found else []
    costs = []
    for key, same in found.items():
        spent = sum(gap.duration_ns for gap in same) / len(steps)
        own = min(own_ns * len(same) / len(steps), spent / 2)
        graphs = {gap.before for gap in same}
        given_up = [compile_id for compile_id, graph in fallbacks if graph in graphs]
        costs.append(GapCost(*key, round(spent - own), round(own), round(len(same) / len(steps)), given_up))
    return sorted(costs, key=lambda cost: -cost.part_ns)
