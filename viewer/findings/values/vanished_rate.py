"""The learning rate of an optimizer of `torch.optim` fell to a hundred-millionth of its largest or less, but not to
zero, and stayed there for at least ten training steps and a quarter of all. Such steps hardly change a parameter. A
scheduler that is called after each batch although its settings count epochs is the usual cause. Programs in which
several lines step optimizers, and rates that are tensors, are left out."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.vanished_rates import VanishedRate, vanished_rates

SUMMARY = "The learning rate fell to almost nothing"
TITLE_IS_MEASURED = True

MOST_SHARE, LEAST_STEPS, LEAST_PART = 1e-8, 10, 0.25


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer."""
    found = vanished_rates(evidence.trace, MOST_SHARE, LEAST_STEPS)
    return [_finding(evidence, one) for one in found if one.after >= LEAST_PART * one.steps]


def _finding(evidence: Evidence, one: VanishedRate) -> Timed:
    source = line_at(one.file, one.line)
    return one.time_unix_ns, Finding(
        kind="vanished_rate",
        severity="warning",
        title=(
            f"The learning rate of {one.name}{place(source)} fell from {number(one.largest)} to {number(one.last)}, so"
            f" that the last {one.after:,} of {one.steps:,} training steps hardly change a parameter"
        ),
        proof=["The usual cause is a scheduler that is stepped after each batch, although its settings count epochs."],
        rule=rule_of(__doc__),
        evidence={"optimizer": one.name, **attributes(one, "largest", "last", "steps", "after")},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )
