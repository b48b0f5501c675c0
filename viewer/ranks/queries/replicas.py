"""Queries parameters and buffers that are alike on several ranks, as DistributedDataParallel keeps them, and that later
differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepscope.viewer.graphs.queries.program_names import as_part, program_expression, program_names
from stepscope.viewer.ranks.queries.logs import rank_rows
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


class Team(NamedTuple):
    """Parameters, or buffers, that ranks share."""

    ranks: tuple[int, ...]
    wrapper: int
    """The number of the DistributedDataParallel in its process; below 0 for the parameters of a frame that the program
    itself keeps alike."""
    are_buffers: bool


_LEAST_RANKS = 2
_LEAST_CHANGE = 2e-3
"""Smallest change of a mean, as a share of the mean, that its digits show."""
_MOST_SPREAD = 0.05
_LEAST_CHANGES = 4
_GRAPHS = """
    SELECT g.graph, r.expressions, r.parameters, r.ranks, coalesce(r.wrapper, 0) AS wrapper,
           coalesce(r.buffer_expressions, '[]') AS buffer_expressions, coalesce(r.buffers, '[]') AS buffers
    FROM replicated_parameters r JOIN graphs g ON g.log = r.log AND g.compile_id = r.compile_id
    WHERE g.phase = 'forward' AND list_contains($1, g.log) ORDER BY r.time_unix_ns
"""
_ARGUMENTS = """
    SELECT DISTINCT s.graph, a.site, a.argument, a.buffer FROM sites s JOIN arguments a ON a.site = s.site
    WHERE list_contains($1, s.graph) AND a.buffer IS NOT NULL AND a.role <> 'out'
"""
# The steps of a log in which it trains are counted: those with a backward pass, since a rank may evaluate alone between
# them. A parameter keeps its value within such a step, so that the first value of each is compared.
FIRST_VALUES = """
    WITH used AS (
        SELECT unnest($1) AS site, unnest($2) AS argument, unnest($3) AS parameter, unnest($4) AS team
    ), trained AS (
        SELECT log, step, row_number() OVER (PARTITION BY log ORDER BY step) AS place
        FROM (SELECT DISTINCT c.log, c.step FROM calls c JOIN graphs b ON b.graph = c.graph AND b.phase = 'backward'
              JOIN graphs f ON f.log = b.log AND f.compile_id = b.compile_id AND list_contains($5, f.graph)) c
    ), first AS (
        SELECT u.team, u.parameter, t.place, v.log, v.step, v.launch, v.value, v.site, v.argument, v.dtype, v.numel,
               v.digest, v.mean
        FROM value_rows v JOIN used u ON u.site = v.site AND u.argument = v.argument
        JOIN trained t ON t.log = v.log AND t.step = v.step
        WHERE v.moment = 'before' AND v.skipped IS NULL AND v.digest IS NOT NULL
        QUALIFY v.value = min(v.value) OVER (PARTITION BY u.team, u.parameter, v.log, v.step)
    )
"""
_DIFFERENT = f"""{FIRST_VALUES}, compared AS (
        SELECT team, parameter, place, count(DISTINCT digest) > 1 AS differs,
               min(place) OVER (PARTITION BY team, parameter) < place AS was_equal
        FROM first GROUP BY team, parameter, place, dtype, numel HAVING count(*) > 1
    ), earliest AS (
        SELECT * FROM compared WHERE differs QUALIFY place = min(place) OVER (PARTITION BY team)
    )
    SELECT f.* EXCLUDE (dtype, numel, mean), e.was_equal FROM first f JOIN earliest e USING (team, parameter, place)
    ORDER BY f.team, f.parameter, f.log
"""
_STEPPED = """
    SELECT s.log, s.step, s.by_what = 'optimizer' AS by_optimizer, s.optimizers FROM steps s
    JOIN (SELECT unnest($1) AS log, unnest($2) AS step) o ON s.log = o.log AND s.step < o.step
    WHERE EXISTS (FROM calls c JOIN graphs g ON g.graph = c.graph
                  WHERE c.log = s.log AND c.step = s.step AND g.phase = 'backward')
    QUALIFY s.step = max(s.step) OVER (PARTITION BY s.log)
"""
# Parameters that change and that all ranks hold alike in every step.
_ALIKE = f"""{FIRST_VALUES}, alike AS (
        SELECT team, parameter, place, count(DISTINCT digest) = 1 AND count(*) = $6 AS is_alike, min(digest) AS digest
        FROM first GROUP BY team, parameter, place
    )
    SELECT team FROM alike GROUP BY team, parameter
    HAVING bool_and(is_alike) AND count(DISTINCT digest) > 1
"""
# The changes of a parameter's mean from one step to the next, where they far exceed its rounding.
_MOVED = f"""{FIRST_VALUES}, moved AS (
        SELECT team, parameter, place, log, mean, mean - lag(mean) OVER (
                   PARTITION BY team, parameter, log ORDER BY place) AS change
        FROM first
    ), compared AS (
        SELECT team, min(change) AS least, max(change) AS most FROM moved GROUP BY team, parameter, place
        HAVING count(change) = $6 AND greatest(abs(least), abs(most)) > {_LEAST_CHANGE} * max(abs(mean))
    )
    SELECT team FROM compared GROUP BY team
    HAVING count(*) >= {_LEAST_CHANGES}
       AND bool_and(most - least <= {_MOST_SPREAD} * greatest(abs(least), abs(most)))
"""
_TRAINED = """
    SELECT graph, compile_id FROM graphs
    WHERE phase = 'forward' AND compile_id IS NOT NULL AND list_contains(?, log) ORDER BY graph
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


@dataclass(frozen=True)
class Stepped:
    """A step of one rank with a backward pass, and what ended it."""

    log: int
    step: int
    by_optimizer: bool
    optimizers: str | None


def steps_before(trace: Trace, replicas: Sequence[Replica]) -> list[Stepped]:
    """Return the last step with a compiled backward pass before that of each replica."""
    return sql.records(Stepped, trace, _STEPPED, [[one.log for one in replicas], [one.step for one in replicas]])


def differing_replicas(trace: Trace) -> dict[Team, list[list[Replica]]]:
    """Return for each process group the parameters that differ in the first step in which any does, or else the
    buffers. Each has its values by rank.

    Ranks may compile several modules in different orders, so that these must have been alike once."""
    of_buffers = _names(trace)
    found = _differing(trace, of_buffers)
    teams = {team for named in of_buffers.values() for _, team in named.values()}
    several = {team.ranks for team in teams if team.wrapper > 0}
    chosen: dict[tuple[int, ...], Team] = {}
    for team, parameters in sorted(found.items(), key=lambda one: (one[0].are_buffers, one[1][0][0].place)):
        if parameters[0][0].was_equal or team.ranks not in several:
            chosen.setdefault(team.ranks, team)
    return {team: found[team] for team in chosen.values()}


class Unwrapped(NamedTuple):
    """Parameters of a frame that differ although no DistributedDataParallel is known."""

    parameters: list[list[Replica]]
    alike: int
    """The number of parameters that change and stay alike; 0 if the ranks began with different values."""
    is_of_frame: bool
    """Whether those that stay alike are of the same frame."""


def unwrapped_replicas(trace: Trace) -> dict[Team, Unwrapped]:
    """Return, where no DistributedDataParallel is known, the parameters of each frame that all ranks should hold alike
    and do not.

    They were alike until some step, while others of the frame, or else of other frames, stay alike; or they differ from
    the start and change by equal amounts, as averaged gradients change them. Where a parameter differs from the start,
    only the frames of the second kind are returned, because it may be a part of one tensor."""
    logs = [row.log for row in rank_rows(trace) if row.compared]
    if len(logs) < _LEAST_RANKS or sql.has_rows(trace, "replicated_parameters"):
        return {}
    frames: dict[str, int] = {}
    names: dict[int, dict[str, tuple[str, Team]]] = {}
    for graph, compile_id in sql.rows(trace, _TRAINED, [logs]):
        team = Team((), -1 - frames.setdefault(compile_id, len(frames)), False)
        known = program_names(trace, graph).items()
        names[graph] = {key: (one.name, team) for key, one in known if one.name and one.kind == "parameter"}
    found = _differing(trace, names)
    if not found:
        return {}
    if not all(parameter[0].was_equal for parameters in found.values() for parameter in parameters):
        moved = _teams_of(trace, _MOVED, names, len(logs))
        return {
            team: Unwrapped(parameters, 0, True)
            for team, parameters in found.items()
            if moved[team] and not parameters[0][0].was_equal
        }
    alike = _teams_of(trace, _ALIKE, names, len(logs))
    others = _others(frames, {team: count for team, count in alike.items() if team not in found})
    return {
        team: Unwrapped(parameters, alike[team] or others, alike[team] > 0)
        for team, parameters in found.items()
        if alike[team] or others
    }


def _others(frames: Mapping[str, int], alike: Mapping[Team, int]) -> int:
    """Return the number of parameters of teams; compiles of one frame have the same ones."""
    of_frame: Counter[str] = Counter()
    for compile_id, number in frames.items():
        frame, count = compile_id.partition("/")[0], alike.get(Team((), -1 - number, False), 0)
        of_frame[frame] = max(of_frame[frame], count)
    return of_frame.total()


def _names(trace: Trace) -> dict[int, dict[str, tuple[str, Team]]]:
    """Return the names in the wrapped module of the inputs of graphs that are alike, by graph and name in the code."""
    compared = [row.log for row in rank_rows(trace) if row.compared]
    lists = ("expressions", "parameters", "ranks", "buffer_expressions", "buffers")
    found: dict[int, dict[str, tuple[str, Team]]] = defaultdict(dict)
    for one in sql.named(trace, _GRAPHS, [compared], json=lists):
        ranks, wrapper = tuple(one["ranks"]), one["wrapper"]
        parameters = zip(map(program_expression, one["expressions"]), one["parameters"], strict=True)
        buffers = zip(map(program_expression, one["buffer_expressions"]), one["buffers"], strict=True)
        of_program = {expression: (name, Team(ranks, wrapper, False)) for expression, name in parameters}
        of_program |= {expression: (name, Team(ranks, wrapper, True)) for expression, name in buffers}
        of_program = {as_part(expression): named for expression, named in of_program.items()} | of_program
        for buffer, known in program_names(trace, one["graph"]).items():
            if known.name in of_program:
                found[one["graph"]][buffer] = of_program[known.name]
    return found


def _differing(trace: Trace, names: Mapping[int, Mapping[str, tuple[str, Team]]]) -> dict[Team, list[list[Replica]]]:
    """Return the parameters of each team that differ in the first step in which any does."""
    teams, columns = arguments_named(trace, names)
    if not columns:
        return {}
    found: dict[Team, dict[str, list[Replica]]] = defaultdict(lambda: defaultdict(list))
    for replica in sql.records(Replica, trace, _DIFFERENT, [*columns, list(names)]):
        found[teams[replica.team]][replica.parameter].append(replica)
    return {team: [*parameters.values()] for team, parameters in found.items()}


def _teams_of(
    trace: Trace, query: str, names: Mapping[int, Mapping[str, tuple[str, Team]]], logs: int
) -> Counter[Team]:
    """Return how many rows a query of parameters on all ranks has for each team."""
    teams, columns = arguments_named(trace, names)
    return Counter(teams[row[0]] for row in sql.rows(trace, query, [*columns, list(names), logs]))


def arguments_named(
    trace: Trace, names: Mapping[int, Mapping[str, tuple[str, Team]]]
) -> tuple[list[Team], list[list[Any]]]:
    """Return the teams, and columns of the arguments that are their parameters: site, argument, parameter, team."""
    teams = sorted({team for found in names.values() for _, team in found.values()})
    number = {team: position for position, team in enumerate(teams)}
    used = [
        (site, argument, parameter, number[team])
        for graph, site, argument, buffer in sql.rows(trace, _ARGUMENTS, [list(names)])
        if buffer in names[graph]
        for parameter, team in [names[graph][buffer]]
    ]
    return teams, [list(column) for column in zip(*used, strict=True)]
