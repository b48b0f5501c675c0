"""Queries parameters that DistributedDataParallel keeps alike on several ranks, and that differ between them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import program_expression, program_names
from stepscope.viewer.ranks.queries.logs import rank_rows
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

Group = tuple[int, ...]
"""The ranks of a process group."""

_GRAPHS = """
    SELECT g.graph, g.log, r.expressions, r.parameters, r.ranks
    FROM replicated_parameters r JOIN graphs g ON g.log = r.log AND g.compile_id = r.compile_id
    WHERE g.phase = 'forward' AND list_contains($1, g.log) ORDER BY r.time_unix_ns
"""
_ARGUMENTS = """
    SELECT DISTINCT s.graph, a.site, a.argument, a.buffer FROM sites s JOIN arguments a ON a.site = s.site
    WHERE list_contains($1, s.graph) AND a.buffer IS NOT NULL AND a.role <> 'out'
"""
# The steps of a log in which it trains are counted, since a rank may evaluate alone between them. A parameter keeps its
# value within such a step, so that the first value of each is compared.
_DIFFERENT = """
    WITH used AS (
        SELECT unnest($1) AS site, unnest($2) AS argument, unnest($3) AS parameter, unnest($4) AS team
    ), trained AS (
        SELECT log, step, row_number() OVER (PARTITION BY log ORDER BY step) AS place
        FROM (SELECT DISTINCT log, step FROM calls WHERE list_contains($5, graph)) c
    ), first AS (
        SELECT u.team, u.parameter, t.place, v.log, v.step, v.launch, v.value, v.site, v.argument, v.dtype, v.numel,
               v.digest
        FROM value_rows v JOIN used u ON u.site = v.site AND u.argument = v.argument
        JOIN trained t ON t.log = v.log AND t.step = v.step
        WHERE v.moment = 'before' AND v.skipped IS NULL AND v.digest IS NOT NULL
        QUALIFY v.value = min(v.value) OVER (PARTITION BY u.team, u.parameter, v.log, v.step)
    ), compared AS (
        SELECT team, parameter, place, count(DISTINCT digest) > 1 AS differs,
               min(place) OVER (PARTITION BY team, parameter) < place AS was_equal
        FROM first GROUP BY team, parameter, place, dtype, numel HAVING count(*) > 1
    ), earliest AS (
        SELECT * FROM compared WHERE differs QUALIFY place = min(place) OVER (PARTITION BY team)
    )
    SELECT f.* EXCLUDE (dtype, numel), e.was_equal FROM first f JOIN earliest e USING (team, parameter, place)
    ORDER BY f.team, f.parameter, f.log
"""


@dataclass(frozen=True)
class Replica:
    """The value of a parameter on one rank."""

    team: int
    parameter: str
    place: int
    """Number of the step among those in which the log trains, counted from 1."""
    log: int
    step: int
    launch: int
    value: int
    site: int
    argument: int
    digest: int
    was_equal: bool
    """Whether the ranks had equal values in an earlier step."""


def differing_replicas(trace: Trace) -> dict[Group, list[list[Replica]]]:
    """Return for each process group the parameters that differ in the first step in which any does. Each has its values
    by rank."""
    ranked = {row.log: row.rank for row in rank_rows(trace) if row.compared}
    graphs = sql.named(trace, _GRAPHS, [list(ranked)], json=("expressions", "parameters", "ranks"))
    names: dict[int, dict[str, tuple[str, Group]]] = defaultdict(dict)
    for one in graphs:
        of_program = dict(zip(map(program_expression, one["expressions"]), one["parameters"], strict=True))
        for buffer, known in program_names(trace, one["graph"]).items():
            if known.name in of_program:
                names[one["graph"]][buffer] = of_program[known.name], tuple(one["ranks"])
    teams = sorted({team for found in names.values() for _, team in found.values()})
    number = {team: position for position, team in enumerate(teams)}
    used = [
        (site, argument, parameter, number[team])
        for graph, site, argument, buffer in sql.rows(trace, _ARGUMENTS, [list(names)])
        if buffer in names[graph]
        for parameter, team in [names[graph][buffer]]
    ]
    if not used:
        return {}
    columns = [list(column) for column in zip(*used, strict=True)]
    found: dict[Group, dict[str, list[Replica]]] = defaultdict(lambda: defaultdict(list))
    for replica in sql.records(Replica, trace, _DIFFERENT, [*columns, list(names)]):
        found[teams[replica.team]][replica.parameter].append(replica)
    return {team: [*parameters.values()] for team, parameters in found.items()}
