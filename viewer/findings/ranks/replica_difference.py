"""A parameter that DistributedDataParallel keeps equal on all ranks of its process group has different values on some
of them, so that the ranks train different models. The finding names the first step of training in which a parameter
differs, by the digests of what the forward pass first read in the step, the parameter, and the ranks whose values
differ from those of most ranks, if most ranks agree. Gradients that were not averaged are a usual cause, because the
program called the wrapped module itself or left out the average, as are other values at the start, a change that one
rank made, and an optimizer that stepped on some ranks only, which the finding says. Where the program averages
gradients without DistributedDataParallel, the finding is a warning: some parameters of a graph were equal on all ranks
and then differ, while others of it, or of other graphs, such as those of a second model, change and stay equal, and
none differed from the start, as the parts of a tensor do; or parameters differ from the start, and the mean of each
changes by the same amount on all ranks in each step. Buffers, such as the statistics of a batch norm, are compared if
DistributedDataParallel is told not to broadcast them; they are reported for information, because ranks only evaluate
differently. Parameters that DistributedDataParallel is told to ignore, sharded ones, gradients, and models whose hook
averages parameters from time to time are not compared. Where it wraps several modules, ranks must have been equal once,
and of modules that share a compiled graph the first in each step is compared. There is one finding per process
group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, open_launch, program_name, rule_of
from stepscope.viewer.findings.values.describe import describe
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.ranks.queries.replicas import (
    Replica,
    Stepped,
    Team,
    Unwrapped,
    differing_replicas,
    steps_before,
    unwrapped_replicas,
)
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import nth, plural
from stepscope.viewer.values.queries.learning_rates import first_rates
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.values import has_values, values_of

SUMMARY = "A parameter differs between ranks that should hold the same"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per process group, at the first step in which a parameter differs."""
    trace = evidence.trace
    if not has_values(trace):
        return []
    unwrapped = unwrapped_replicas(trace).items()
    return [
        *(_finding(evidence, team, found) for team, found in differing_replicas(trace).items()),
        *(_finding(evidence, team, one.parameters, one) for team, one in unwrapped),
    ]


def _finding(evidence: Evidence, team: Team, found: list[list[Replica]], by: Unwrapped | None = None) -> Timed:
    """Return the finding; `by` tells of the parameters if no DistributedDataParallel keeps them equal."""
    trace, replicas = evidence.trace, found[0]
    rank_of = {one.log: evidence.rank_of(one.log) for one in replicas}
    ((usual, count), *_) = Counter(one.digest for one in replicas).most_common()
    others = [one for one in replicas if one.digest != usual]
    is_split = count > len(others)  # else no value is that of most ranks
    here, there = others[0], next(one for one in replicas if one.digest == usual)
    site = site_rows(trace, [here.site])[0]
    argument = next(one for one in site.arguments if one.argument == here.argument)
    name = program_name(trace, site.graph, argument.buffer or argument.name)
    where, source = launch_place(trace, here.launch), source_line(site)
    unlike = None if team.are_buffers or not here.was_equal else _unlike_steps(steps_before(trace, replicas), rank_of)
    odd = sorted(rank for one in others if (rank := rank_of[one.log]) is not None)
    proof = [_content(trace, name, one, rank_of[one.log]) for one in (here, there)]
    return where.time_unix_ns, Finding(
        kind="replica_difference",
        severity="info" if team.are_buffers else "critical" if by is None else "warning",
        title=_title(_what(team, f"{name}{place(source)}", len(found) - 1), odd, len(replicas), is_split, here),
        proof=[*proof, *([unlike] if unlike else _reasons(team, found, by)), *_steps_at(trace, here, by)],
        links=[open_launch(here.launch), open_launch(there.launch)],
        rule=rule_of(__doc__),
        evidence={
            "ranks": list(team.ranks) or sorted(rank for rank in rank_of.values() if rank is not None),
            "differing_ranks": odd if is_split else sorted(rank for rank in rank_of.values() if rank is not None),
            "parameter": here.parameter,
            "parameters": len(found),
            "other_parameters": names_text([one[0].parameter for one in found[1:]]),
            "training_step": here.place,
            "launch_in_step": where.ordinal,
            "parameters_that_stay_equal": by.alike if by is not None else None,
            "is_of_skipped_step": unlike is not None,
        },
        page=f"/steps/{here.step}?log={here.log}&launch={here.launch}",
        rank=rank_of[here.log],
        step=here.step,
        log=here.log,
        launch=here.launch,
        graph=site.graph,
        kernel=site.kernel,
        buffer=argument.buffer,
        argument=argument.name,
        source=source,
    )


def _unlike_steps(before: list[Stepped], rank_of: Mapping[int, int | None]) -> str | None:
    """Return that an optimizer stepped on some ranks alone, in the step before the first difference."""
    stepped, others = ([one for one in before if one.by_optimizer is made] for made in (True, False))
    if not stepped or not others:
        return None
    ranks = [sorted(rank for one in part if (rank := rank_of[one.log]) is not None) for part in (stepped, others)]
    on, off = (f"rank{'s' if len(part) > 1 else ''} {names_text([*map(str, part)])}" for part in ranks)
    name = stepped[0].optimizers if "," not in (stepped[0].optimizers or ",") else "An optimizer"
    steps = {one.step for one in before}
    when = f"in step {steps.pop()}" if len(steps) == 1 else "in the step before"
    return (
        f"{name} made a step on {on} {when}, but not on {off}. Whether to step must be decided alike on all ranks, for"
        " example by the sum or the maximum of their losses; a gradient scaler decides alike only if gradients are"
        " averaged."
    )


def _steps_at(trace: Trace, here: Replica, by: Unwrapped | None) -> list[str]:
    """Return which optimizers step where, before which gradients would have to be averaged."""
    steps = first_rates(trace, here.log) if by is not None and by.alike else []
    if not steps:
        return []
    named = names_text([one.name + place(one.source) for one in steps])
    return [f"Parameters change in the step{'s' if len(steps) > 1 else ''} of {named}."]


def _reasons(team: Team, found: list[list[Replica]], by: Unwrapped | None) -> list[str]:
    if team.are_buffers:
        return ["DistributedDataParallel is told not to broadcast buffers, so that each rank evaluates with its own."]
    if by is None:
        return []
    if by.alike:
        whose = "the graph" if by.is_of_frame else "other graphs"
        others = (
            f"{plural(by.alike, 'other parameter')} of {whose} {'change' if by.alike > 1 else 'changes'} in training"
        )
        differ = names_text([one[0].parameter for one in found])
        averaged = (
            "stay equal on all ranks: their gradients are"
            if by.alike > 1
            else "stays equal on all ranks: its gradient is"
        )
        return [f"{others} and {averaged} averaged, and those of {differ} are probably not"]
    what = "Each of the parameters that differ changes" if len(found) > 1 else "The parameter changes"
    return [
        f"{what} by the same amount on all ranks in each step: gradients are averaged, but the ranks began with "
        "different values. Broadcast the parameters once before the training, as DistributedDataParallel does."
    ]


def _what(team: Team, name: str, others: int) -> str:
    kind = "buffer" if team.are_buffers else "parameter"
    whole = f"The {'replicated ' * (team.wrapper >= 0 and not team.are_buffers)}{kind} {name}"
    return f"{whole} and {plural(others, f'other {kind}')} have" if others else f"{whole} has"


def _title(what: str, odd: list[int], count: int, is_split: bool, here: Replica) -> str:
    """Return what has different values on which of `count` ranks since when; `odd` ranks lack the usual value."""
    ranks = f"rank{'s' if len(odd) > 1 else ''} {names_text([*map(str, odd)])}"
    where = f"different values on {ranks} than on the other {count - len(odd)} ranks"
    if not is_split:
        where = f"different values on {count} ranks"
    since = "; all ranks had equal values before" if here.was_equal else ", which is the first step that was compared"
    return f"{what} {where} from step {here.step} on{since}"


def _content(trace: Trace, name: str, replica: Replica, rank: int | None) -> str:
    said = f"rank {rank}: {describe(name, values_of(trace, [replica.value])[replica.value])}"
    where = launch_place(trace, replica.launch)
    if where.ordinal is None or where.of is None:
        return said
    position = f"the {nth(where.ordinal)} of {plural(where.of, 'launch')} of step {where.step}"
    return f"{said}, at launch {where.launch}, {position}"
