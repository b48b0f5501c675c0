"""An optimizer ended a step of the training on some ranks and not on others, although all ranks ran a backward pass of
compiled code in this step. Parameters that the ranks hold alike differ from then on. A check of the loss or of the
gradients that each rank makes for itself is a usual cause. The ranks must have the same number of steps with a backward
pass, at least six, and launch the same number of kernels in nearly all of them, unlike the stages of a pipeline; an
optimizer must have ended most of them on each rank. The last step does not count. If values were recorded and a
parameter differs after such a step, the finding replica_difference tells it instead."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.findings.ranks import replica_difference
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.ranks.queries.skipped_steps import SkippedSteps, skipped_steps
from stepscope.viewer.text.formats import steps_text

SUMMARY = "An optimizer stepped on some ranks only"
_MOST_RANKS = 8


def find(evidence: Evidence) -> list[Timed]:
    """Return at most one finding; none if one of different parameters tells these steps as its cause."""
    found = skipped_steps(evidence.trace)
    if found is None or any(one.evidence["is_of_skipped_step"] for _, one in replica_difference.find(evidence)):
        return []
    return [_finding(evidence, found)]


def _finding(evidence: Evidence, one: SkippedSteps) -> Timed:
    return one.start_ns, Finding(
        kind="skipped_step",
        severity="warning",
        title=f"{one.optimizer}{place(one.source)} stepped on {_ranks(one.stepped)}, but not on {_ranks(one.skipped)},"
        f" in {steps_text(one.steps)}",
        proof=[
            "If the ranks train one model, its parameters differ from then on. Decide on all ranks together whether to"
            " skip a step, for instance by an all_reduce of the condition."
        ],
        rule=rule_of(__doc__),
        evidence={
            "optimizer": one.optimizer,
            "stepped": one.stepped[:_MOST_RANKS],
            "skipped": one.skipped[:_MOST_RANKS],
            "steps": one.steps[:_MOST_RANKS],
        },
        page=f"/steps/{one.steps[0]}?log={one.log}",
        log=one.log,
        step=one.steps[0],
        source=one.source,
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {names_text([*map(str, ranks)])}"
