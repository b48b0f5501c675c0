"""After each of three or more steps of an optimizer the gradients with which it stepped were still there when the next
backward pass of a compiled graph began, and after no step were they set to zero or replaced. The backward pass adds to
them, so that each step uses the sum of all gradients since the first step. A missing `zero_grad` is the usual cause.
All backward passes until the optimizer's next step are looked at, because the first may compute other gradients, or
with several optimizers add to these. Gradients that are set to zero from time to time, as where they are
accumulated, do not count. The gradient of the smallest parameter decides; those of tensor subclasses, such as DTensor,
are not looked at."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.kept_gradients import NeverCleared, never_cleared

SUMMARY = "Gradients are never set to zero"
TITLE_IS_MEASURED = True

LEAST_STEPS = 3


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer."""
    return [_finding(evidence, one) for one in never_cleared(evidence.trace, LEAST_STEPS)]


def _finding(evidence: Evidence, one: NeverCleared) -> Timed:
    source = line_at(one.file, one.line)
    return one.time_unix_ns, Finding(
        kind="kept_gradients",
        severity="warning",
        title=f"The gradients of {one.name}{place(source)} are never set to zero and add up from step to step",
        proof=[
            f"After each of {one.kept:,} steps the gradients were still there when the next backward pass began;"
            " call zero_grad() before it."
        ],
        rule=rule_of(__doc__),
        evidence={"optimizer": one.name, "kept": one.kept, "cleared": 0},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )
