"""Queries steps of a training that an optimizer ended on some ranks alone."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.ranks.queries.logs import rank_rows
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_STEPS = 6
_LEAST_SHARE = 0.5
"""Share of the steps of each rank that an optimizer must have ended."""
_TRAINED = """
    SELECT s.log, s.step, s.by_what = 'optimizer', s.optimizers, s.start_ns FROM steps s
    WHERE list_contains($1, s.log) AND EXISTS (
        FROM calls c JOIN graphs g ON g.graph = c.graph AND g.phase = 'backward'
        WHERE c.log = s.log AND c.step = s.step)
    ORDER BY s.log, s.step
"""
_STEPPED_AT = "SELECT file, line FROM learning_rates WHERE log = ? AND name = ? ORDER BY time_unix_ns LIMIT 1"


class SkippedSteps(NamedTuple):
    """Steps that an optimizer ended on some ranks alone."""

    optimizer: str
    """Its class, or several ones."""
    stepped: list[int]
    """The ranks on which it stepped in the first of these steps."""
    skipped: list[int]
    """The other ranks."""
    steps: list[int]
    """Those in which the optimizer stepped on these ranks alone, as the first of the other ranks counts them."""
    log: int
    """That of the first of the other ranks."""
    start_ns: int
    source: SourceLine | None
    """The place in the program that steps the optimizer."""


class _Step(NamedTuple):
    step: int
    by_optimizer: bool
    optimizers: str | None
    start_ns: int


def skipped_steps(trace: Trace) -> SkippedSteps | None:
    """Return the steps with a backward pass that ended by an optimizer on some ranks and not on others, or None.

    The ranks must have as many steps, at least six, most of which an optimizer ended. The last step is left out,
    because a log may end in it."""
    ranks = {row.log: row.rank for row in rank_rows(trace) if row.compared and row.rank is not None}
    by_log: defaultdict[int, list[_Step]] = defaultdict(list)
    for log, *facts in sql.rows(trace, _TRAINED, [[*ranks]]) if len(ranks) > 1 else []:
        by_log[log].append(_Step(*facts))
    counts = {len(steps) for steps in by_log.values()}
    if len(by_log) != len(ranks) or len(counts) != 1 or counts.pop() < LEAST_STEPS:
        return None
    if any(sum(one.by_optimizer for one in steps) < _LEAST_SHARE * len(steps) for steps in by_log.values()):
        return None
    logs = [*by_log]
    by_place = [*zip(*by_log.values(), strict=True)][:-1]
    first = next((row for row in by_place if len({one.by_optimizer for one in row}) > 1), None)
    if first is None:
        return None
    differ = [row for row in by_place if [one.by_optimizer for one in row] == [one.by_optimizer for one in first]]
    by_rank = sorted(zip(logs, first, strict=True), key=lambda one: ranks[one[0]])
    (stepped, made), *_ = [one for one in by_rank if one[1].by_optimizer]
    (skipped, left), *_ = [one for one in by_rank if not one[1].by_optimizer]
    name = made.optimizers or "An optimizer"
    place = sql.row(trace, _STEPPED_AT, [stepped, name])
    return SkippedSteps(
        name,
        [ranks[log] for log, one in by_rank if one.by_optimizer],
        [ranks[log] for log, one in by_rank if not one.by_optimizer],
        [row[logs.index(skipped)].step for row in differ],
        skipped,
        left.start_ns,
        line_at(*place) if place is not None else None,
    )
