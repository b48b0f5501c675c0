"""A parameter that DistributedDataParallel keeps alike on all ranks of its process group has other values on some of
them, so that the ranks train different models. The finding names the first step of training in which a parameter
differs, by the digests of what the forward pass first read in the step, the parameter, and the ranks that have
other values than most ranks, if most ranks agree. Gradients that were not averaged are a usual cause, because the
program called the wrapped module itself or left out the average, as are other values at the start, and a change
that one rank made. Parameters that DistributedDataParallel is told to ignore, sharded ones, buffers, gradients, and
models whose hook averages parameters from time to time are not compared. There is one finding per process group."""

from __future__ import annotations

from collections import Counter

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, open_launch, program_name, rule_of
from stepscope.viewer.findings.values.describe import describe
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.ranks.queries.replicas import Group, Replica, differing_replicas
from stepscope.viewer.store.sql import has_rows
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.values import has_values, values_of

SUMMARY = "A parameter differs between ranks that should hold the same"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per process group, at the first step in which a parameter differs."""
    trace = evidence.trace
    if not has_values(trace) or not has_rows(trace, "replicated_parameters"):
        return []
    return [_finding(evidence, team, found) for team, found in differing_replicas(trace).items()]


def _finding(evidence: Evidence, team: Group, found: list[list[Replica]]) -> Timed:
    trace, replicas = evidence.trace, found[0]
    rank_of = {one.log: evidence.rank_of(one.log) for one in replicas}
    ((usual, count), *_) = Counter(one.digest for one in replicas).most_common()
    others = [one for one in replicas if one.digest != usual]
    is_split = count > len(others)  # else no value is that of most ranks
    here, there = others[0], next(one for one in replicas if one.digest == usual)
    site = site_rows(trace, [here.site])[0]
    argument = next(one for one in site.arguments if one.argument == here.argument)
    name = program_name(trace, site.graph, argument.buffer or argument.name)
    where = launch_place(trace, here.launch)
    odd = sorted(rank for one in others if (rank := rank_of[one.log]) is not None)
    proof = [_content(trace, name, one, rank_of[one.log]) for one in (here, there)]
    return where.time_unix_ns, Finding(
        kind="replica_difference",
        severity="critical",
        title=_title(name, odd, len(replicas), is_split, here),
        proof=proof,
        links=[open_launch(here.launch), open_launch(there.launch)],
        rule=rule_of(__doc__),
        evidence={
            "ranks": list(team),
            "differing_ranks": odd if is_split else sorted(rank for rank in rank_of.values() if rank is not None),
            "parameter": here.parameter,
            "parameters": len(found),
            "other_parameters": names_text([one[0].parameter for one in found[1:]]),
            "training_step": here.place,
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
    )


def _title(name: str, odd: list[int], count: int, is_split: bool, here: Replica) -> str:
    """Return what differs, on which of `count` ranks, and since when; `odd` ranks are those without the usual value."""
    ranks = f"rank{'s' if len(odd) > 1 else ''} {names_text([*map(str, odd)])}"
    where = f"has other values on {ranks} than on the other {count - len(odd)} ranks"
    if not is_split:
        where = f"has different values on {count} ranks"
    since = "; before, the ranks were equal" if here.was_equal else ", the first step that was compared"
    return f"The replicated parameter {name} {where} from step {here.step} on{since}"


def _content(trace: Trace, name: str, replica: Replica, rank: int | None) -> str:
    return f"rank {rank}: {describe(name, values_of(trace, [replica.value])[replica.value])}"
