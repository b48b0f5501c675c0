"""Queries inputs with equal values on all ranks of a DistributedDataParallel in each step, as equal batches have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.ranks.queries.logs import rank_rows
from stepscope.viewer.ranks.queries.replicas import FIRST_VALUES, Team, arguments_named
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

LEAST_STEPS = 4
LEAST_ELEMENTS = 16
"""Minimum size of one of the inputs: a single number, such as that of the step, is equal on healthy ranks."""
_GRAPHS = """
    SELECT DISTINCT g.graph, r.ranks FROM replicated_parameters r
    JOIN graphs g ON g.log = r.log AND g.compile_id = r.compile_id
    WHERE g.phase = 'forward' AND list_contains($1, g.log) ORDER BY g.graph
"""
_UNREAD = """
    WITH used AS (SELECT unnest($1) AS site, unnest($2) AS argument)
    SELECT EXISTS (FROM value_rows v JOIN used USING (site, argument)
                   WHERE v.moment = 'before' AND (v.skipped IS NOT NULL OR v.digest IS NULL))
"""
# Those that keep their value, such as masks and positions, tell nothing.
_CHANGING = f"""{FIRST_VALUES}, compared AS (
        SELECT team, parameter, place, count(DISTINCT digest) = 1 AND count(DISTINCT log) = $6 AS is_equal,
               min(digest) AS digest, arg_min(value, log) AS value
        FROM first GROUP BY team, parameter, place
    ), changing AS (
        SELECT bool_and(is_equal) AS are_equal, count(*) AS steps, arg_min(value, place) AS value
        FROM compared GROUP BY team, parameter
        HAVING count(*) >= {LEAST_STEPS} AND count(DISTINCT digest) >= {LEAST_STEPS - 1}
    )
    SELECT c.are_equal, c.steps, v.log, v.step, v.launch, v.site, v.argument, v.numel
    FROM changing c JOIN value_rows v USING (value) ORDER BY v.numel DESC, v.value
"""


@dataclass(frozen=True)
class EqualInput:
    """An input that changes from step to step, and the first launch of the first rank that reads it."""

    are_equal: bool
    """Whether it has equal values on all ranks in each step."""
    steps: int
    log: int
    step: int
    launch: int
    site: int
    argument: int
    numel: int


def equal_inputs(trace: Trace) -> list[EqualInput]:
    """Return the inputs that change if all of them have equal values on all ranks in each step, the largest first.
    Nothing is returned if some of their values were not read."""
    logs = [row.log for row in rank_rows(trace) if row.compared]
    names: dict[int, Mapping[str, tuple[str, Team]]] = {}
    for graph, ranks in sql.rows(trace, _GRAPHS, [logs]):
        known = program_names(trace, graph).items()
        team = Team(tuple(sql.json_value(ranks)), 0, False)
        names[graph] = {key: (one.name, team) for key, one in known if one.name and one.kind == "input"}
    teams, columns = arguments_named(trace, names)
    if not columns or any(len(team.ranks) != len(logs) for team in teams):
        return []
    if sql.row(trace, _UNREAD, columns[:2]) == (True,):
        return []
    found = sql.records(EqualInput, trace, _CHANGING, [*columns, list(names), len(logs)])
    is_batch = bool(found) and all(one.are_equal for one in found) and found[0].numel >= LEAST_ELEMENTS
    return found if is_batch else []
