"""The `forward` of a `DistributedDataParallel` with more than one rank has never run when an optimizer of `torch.optim`
begins its sixth step with gradients of the wrapped module. It averages the gradients of a backward pass only if its own
`forward` ran before, and not if the program calls or compiles the wrapped module, as through `ddp.module`. A call
without grad mode or in `no_sync` counts as one. The parameters must differ on two ranks, so that a program which
averages by itself has no such finding; some of their elements are compared. If one rank alone has a log, the process
must have called no collective during these steps."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.ranks.queries.unaveraged_gradients import Drift, unaveraged_gradients

SUMMARY = "DistributedDataParallel is never called, so that it averages no gradients"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per module, over all ranks."""
    return [_finding(evidence, one) for one in unaveraged_gradients(evidence.trace)]


def _finding(evidence: Evidence, one: Drift) -> Timed:
    first, source = one.first, line_at(one.first.file, one.first.line)
    ends = (
        f"the parameters differ on {one.logs} ranks after {first.steps} steps of {first.name}{place(source)}"
        if one.logs > 1
        else f"{first.name}{place(source)} has made {first.steps} steps with those of one rank alone"
    )
    return first.time_unix_ns, Finding(
        kind="unaveraged_gradients",
        severity="warning",
        title=f"The DistributedDataParallel of {first.module} is never called, so that it averages no gradients:"
        f" {ends}",
        proof=[
            "It averages the gradients of a backward pass only if its own forward ran before; the forward of the"
            " wrapped module does not count.",
            f"Call the DistributedDataParallel, not the module that it wraps{place(one.call)}. It may wrap what"
            " torch.compile returns.",
        ],
        rule=rule_of(__doc__),
        evidence={"optimizer": first.name, "steps": first.steps, "module": first.module, "logs": one.logs},
        page="/ranks",
        log=first.log if one.logs == 1 else None,
        source=one.call or source,
    )
