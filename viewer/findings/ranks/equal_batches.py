"""All ranks of a DistributedDataParallel read the same inputs in each step, so that they compute equal gradients and
train no faster than one rank. Only inputs that change from step to step are compared, by the digests of what the
forward pass first reads in each of at least four steps, and one of them must have 16 elements or more. Nothing is
reported if one of them differs between ranks, or if the ranks are not those of one process group. It is information,
because a test of a program may do this on purpose."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, open_launch, program_name, rule_of
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.ranks.queries.equal_inputs import EqualInput, equal_inputs
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "All ranks train on the same batches"


def find(evidence: Evidence) -> list[Timed]:
    """Return at most one finding, about the largest input."""
    trace = evidence.trace
    found = equal_inputs(trace) if has_values(trace) else []
    return [_finding(evidence, found[0], len(found) - 1)] if found else []


def _finding(evidence: Evidence, one: EqualInput, others: int) -> Timed:
    trace = evidence.trace
    (site,), where = site_rows(trace, [one.site]), launch_place(trace, one.launch)
    argument = next(given for given in site.arguments if given.argument == one.argument)
    name, source = program_name(trace, site.graph, argument.buffer or argument.name), source_line(site)
    what = f"inputs {name} and {plural(others, 'other one')}" if others else f"input {name}"
    ranks = len({run.rank for run in evidence.runs if run.rank is not None})
    who = "Both" if ranks == 2 else f"All {ranks}"
    return where.time_unix_ns, Finding(
        kind="equal_batches",
        severity="info",
        title=f"{who} ranks read the same values of {what}{place(source)} in each of {one.steps} steps",
        proof=[
            "The gradients that DistributedDataParallel averages are then equal. Give each rank batches of its own, as"
            " a DistributedSampler does."
        ],
        links=[open_launch(one.launch)],
        rule=rule_of(__doc__),
        evidence={"ranks": ranks, "steps": one.steps, "inputs": others + 1},
        page=f"/steps/{one.step}?log={one.log}&launch={one.launch}",
        log=one.log,
        step=one.step,
        graph=site.graph,
        launch=one.launch,
        kernel=site.kernel,
        buffer=argument.buffer,
        argument=argument.name,
        source=source,
    )
