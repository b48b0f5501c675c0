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
_MOST_UNLIKE = 0.1
"""Share of the steps in which ranks of one training may launch other numbers of kernels."""
_MOST_PLACES = 1_000
# The steps with a backward pass are counted on each rank. The last one is left out, because a log may end in it.
_TRAINED = """
    WITH trained AS (
        SELECT s.log, s.step, s.by_what = 'optimizer' AS made, s.optimizers, s.start_ns, s.launches,
               row_number() OVER (PARTITION BY s.log ORDER BY s.step) AS place,
               count(*) OVER (PARTITION BY s.log) AS steps
        FROM steps s SEMI JOIN (
            SELECT DISTINCT c.log, c.step FROM calls c JOIN graphs g ON g.graph = c.graph AND g.phase = 'backward'
        ) b ON b.log = s.log AND b.step = s.step
        WHERE list_contains($1, s.log)
    )
"""
_COUNTS = f"""{_TRAINED}, places AS (
        SELECT bool_and(made) AND count(DISTINCT launches) > 1 AS is_unlike FROM trained GROUP BY place
    )
    SELECT count(DISTINCT log), min(steps), max(steps),
           (SELECT min(made) FROM (SELECT count(*) FILTER (made) AS made FROM trained GROUP BY log)),
           (SELECT count(*) FILTER (is_unlike) FROM places)
    FROM trained
"""
_DIFFERING = f"""{_TRAINED}, differing AS (
        SELECT place FROM trained WHERE place < steps GROUP BY place HAVING bool_or(made) AND NOT bool_and(made)
        ORDER BY place LIMIT {_MOST_PLACES}
    )
    SELECT place, log, step, made, optimizers, start_ns FROM trained JOIN differing USING (place) ORDER BY place, log
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
    place: int
    log: int
    step: int
    made: bool
    """Whether an optimizer ended it."""
    optimizers: str | None
    start_ns: int


def skipped_steps(trace: Trace) -> SkippedSteps | None:
    """Return the steps with a backward pass that ended by an optimizer on some ranks and not on others, or None.

    The ranks must have as many such steps, at least six, most of which an optimizer ended, and must launch as many
    kernels in nearly all of those that all ranks ended alike: the stages of a pipeline do not."""
    ranks = {row.log: row.rank for row in rank_rows(trace) if row.compared and row.rank is not None}
    if len(ranks) < 2:
        return None
    logs, least, most, made, unlike = sql.row(trace, _COUNTS, [[*ranks]]) or (0, 0, 0, 0, 0)
    is_one_training = logs == len(ranks) and least == most and unlike <= _MOST_UNLIKE * most
    if not is_one_training or least < LEAST_STEPS or made < _LEAST_SHARE * least:
        return None
    found: defaultdict[int, list[_Step]] = defaultdict(list)
    for one in sql.records(_Step, trace, _DIFFERING, [[*ranks]]):
        found[one.place].append(one)
    rows = [*found.values()]
    if not rows:
        return None
    alike = [row for row in rows if [one.made for one in row] == [one.made for one in rows[0]]]
    by_rank = sorted(rows[0], key=lambda one: ranks[one.log])
    stepped, left = ([one for one in by_rank if one.made is made] for made in (True, False))
    name = stepped[0].optimizers or "An optimizer"
    place = sql.row(trace, _STEPPED_AT, [stepped[0].log, name])
    return SkippedSteps(
        name,
        [ranks[one.log] for one in stepped],
        [ranks[one.log] for one in left],
        [one.step for row in alike for one in row if one.log == left[0].log],
        left[0].log,
        left[0].start_ns,
        line_at(*place) if place is not None else None,
    )
