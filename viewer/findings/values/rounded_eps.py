"""The eps of an optimizer of `torch.optim` is zero in float16, the dtype of its parameters, as 1e-8 is, which is the
default of Adam. The optimizer adds it to the root of a mean of squared gradients that is kept in float16, too, where
the squares of gradients below about 0.008 are zero after the first step. There it divides by zero, and the parameter
becomes infinite or NaN. Fused optimizers compute in float32 and do not count. If values were recorded and a parameter
has become infinite or NaN after a finite gradient, this is said in that finding (nonfinite) instead. There is one
finding per class of optimizers and line of the program."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values import nonfinite
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.nonfinite_titles import DIVIDES
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.learning_rates import RoundedEps, rounded_eps

SUMMARY = "The eps of an optimizer is zero in float16"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer and line of each log in which it is not said of a NaN."""
    found = rounded_eps(evidence.trace)
    told = {one.log for _, one in nonfinite.find(evidence) if DIVIDES in " ".join(one.proof)} if found else set()
    return [_finding(evidence, one) for one in found if one.log not in told]


def _finding(evidence: Evidence, one: RoundedEps) -> Timed:
    source = line_at(one.file, one.line)
    return one.time_unix_ns, Finding(
        kind="rounded_eps",
        severity="warning",
        title=f"The eps of {one.name}{place(source)}, {number(one.eps)}, is zero in float16, the dtype of parameters",
        proof=[DIVIDES],
        rule=rule_of(__doc__),
        evidence={"optimizer": one.name, **attributes(one, "eps")},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )
