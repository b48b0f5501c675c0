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
    SELECT f.compile_id, (SELECT arg_max(c.graph, c.start_ns) FROM calls c WHERE c.log = f.log AND c.depth = 0
           AND c.start_ns < f.start_unix_ns - l.unix_ns + l.monotonic_ns)
    FROM compiles f JOIN logs l ON l.log = f.log
    WHERE f.log = ? AND f.status = 'fallback' AND l.monotonic_ns IS NOT NULL
"""


class GapCost(NamedTuple):
    """Time between the same two calls, or between one and the begin or end of the step, in the typical steps."""

    kind: PartKind
    before: GraphPlace | None
    after: GraphPlace | None
    part_ns: int
    """Mean per step."""
    times: int
    """How often this is in a step."""
    fallbacks: list[str]
    """Compiles that were given up when a function was called there, so that Python runs it."""


def gap_costs(trace: Trace) -> dict[int, list[GapCost]]:
    """Return the gaps of each log that spends much of its typical steps outside of compiled code, the longest first."""
    return trace.once(_gap_costs)


def _gap_costs(trace: Trace) -> dict[int, list[GapCost]]:
    steps = typical_steps(trace)
    return {run.log: _costs(trace, run.log, steps[run.log].steps) for run in run_splits(trace) if _is_much(run)}


def _is_much(run: RunSplit) -> bool:
    spent = sum(part.duration_ns for part in run.parts if part.kind in _KINDS)
    return spent >= max(LEAST_NS, LEAST_SHARE * run.typical_ns)


def _costs(trace: Trace, log: int, steps: Sequence[int]) -> list[GapCost]:
    found: defaultdict[tuple[PartKind, GraphPlace | None, GraphPlace | None], list[Gap]] = defaultdict(list)
    gaps = [gap for gap in step_gaps(trace, log, steps) if gap.kind in _KINDS]
    places = graph_places(trace, {graph for gap in gaps for graph in (gap.before, gap.after) if graph is not None})
    for gap in gaps:
        found[gap.kind, places.get(gap.before), places.get(gap.after)].append(gap)
    fallbacks = sql.rows(trace, _FALLBACKS, [log]) if found else []
    costs = [
        GapCost(
            *key,
            part_ns=round(sum(gap.duration_ns for gap in same) / len(steps)),
            times=round(len(same) / len(steps)),
            fallbacks=[compile_id for compile_id, graph in fallbacks if graph in {gap.before for gap in same}],
        )
        for key, same in found.items()
    ]
    return sorted(costs, key=lambda cost: -cost.part_ns)
