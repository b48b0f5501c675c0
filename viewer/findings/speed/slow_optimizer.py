"""Steps of an optimizer of `torch.optim` that is neither fused nor compiled take at least 25 % and 2 ms of each typical
step on a CPU. Typical steps are those of medium duration in which nothing was compiled; there must be four. Steps of
the optimizer that take less than a millisecond, and those with a closure, do not count. The finding is a warning from
50 % on. There is none on a GPU, where the host may prepare the kernels of the optimizer while earlier ones run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import (
    Slowness,
    amount,
    facts_of,
    one_per_cause,
    steady_runs,
    steady_steps,
    step_page,
)
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.optimizers import OptimizerRow, slowest_optimizer
from stepscope.viewer.speed.rows import RunSplit

SUMMARY = "The optimizer takes much of each step"

LEAST_SHARE, WARNING_SHARE, LEAST_NS = 0.25, 0.5, 2_000_000
_FUSED = "{}(..., fused=True) updates the parameters in one kernel."
_COMPILED = "torch.compile(optimizer.step) computes the updates in few kernels."


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same optimizer takes this time."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    for run in steady_runs(evidence):
        spent = sum(part.duration_ns for part in run.parts if part.kind == "optimizer")
        least = max(LEAST_NS, LEAST_SHARE * run.typical_ns)
        if run.on_device or spent < least:
            continue
        slowest = slowest_optimizer(evidence.trace, run.log, steady_steps(evidence, run).spans)
        if slowest is not None and (own := round(spent * slowest.share)) >= least:
            yield Slowness((slowest.name, slowest.source), run, own, partial(_finding, evidence, run, own, slowest))


def _finding(evidence: Evidence, run: RunSplit, spent: int, slowest: OptimizerRow) -> Finding:
    advice = _COMPILED if slowest.is_fused is None else _FUSED.format(slowest.name)
    return Finding(
        kind="slow_optimizer",
        severity="warning" if spent >= WARNING_SHARE * run.typical_ns else "info",
        title=f"The optimizer {slowest.name} takes {amount(spent, run.typical_ns)}",
        rule=rule_of(__doc__),
        proof=[advice],
        evidence={**facts_of(run, spent), "optimizer": slowest.name},
        page=step_page(evidence, run),
        rank=run.rank,
        log=run.log,
        source=slowest.source,
    )
