"""The eps of an optimizer of `torch.optim` rounds to zero in float16, the dtype of some of its parameters; the default
of Adam, 1e-8, does. Adam, AdamW, NAdam, RAdam and RMSprop add it to the root of a mean of squared gradients, which they
keep in the dtype of the parameter, and in which the squares of gradients below about 0.005 are zero after the first
step of Adam. Where both are zero, the optimizer divides by zero, and the parameter becomes infinite or NaN. Fused
optimizers compute in float32 and do not count. If values were recorded and a parameter became infinite or NaN after a
finite gradient, the finding nonfinite says so instead. If parameters of the optimizer were seen to become NaN or
infinite without values (nonfinite_parameters), and all that did are in float16, this finding tells it. It is critical
if they hold NaN, and otherwise a warning. There is one finding per class of optimizers and line of the program."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values import nonfinite
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.nonfinite_parameters import after, what_holds
from stepscope.viewer.findings.values.nonfinite_titles import DIVIDES
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.learning_rates import RoundedEps, rounded_eps
from stepscope.viewer.values.queries.nonfinite_parameters import BadParameters, nonfinite_parameters

SUMMARY = "The eps of an optimizer is zero in float16"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer and line of each log without a finding nonfinite that names its eps."""
    found = rounded_eps(evidence.trace)
    told = {one.log for _, one in nonfinite.find(evidence) if one.evidence.get("rounded_eps")} if found else set()
    seen = [one for one in nonfinite_parameters(evidence.trace) if one.eps_may_be_cause] if found else []
    bad = {(one.log, *one.optimizer): one for one in seen}
    return [
        _finding(evidence, one, bad.get((one.log, one.name, one.file, one.line)))
        for one in found
        if one.log not in told
    ]


def _finding(evidence: Evidence, one: RoundedEps, bad: BadParameters | None) -> Timed:
    source, eps = line_at(one.file, one.line), number(one.eps)
    return one.time_unix_ns, Finding(
        kind="rounded_eps",
        severity="critical" if bad is not None and bad.is_nan else "warning",
        title=f"The eps of {one.name}{place(source)}, {eps}, is zero in float16, the dtype of its parameters",
        proof=[DIVIDES, *([f"{what_holds(bad)} {after(bad.steps)}."] if bad is not None else [])],
        rule=rule_of(__doc__),
        evidence={"optimizer": one.name, **attributes(one, "eps")},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )
