"""Parameters of an optimizer of `torch.optim` became NaN or infinite. The recorder looks at them before the first step,
after the steps 1, 2, 4, 8 and so on, and when the recording ends, also if it reads no other values; so the finding
tells between which two of these looks it happened, and which steps to record with values to find the first launch that
makes NaN. It names a parameter group whose learning rate is at least ten times the median of all groups. What was NaN
or infinite already when it was first looked at may be meant, as a mask is, and makes no finding by itself. The finding
is critical if one of the parameters holds NaN, and for information if they hold only infinities, which the program may
set itself, for example as a mask. If values were recorded, and the finding nonfinite or exploding_values tells of the
same log what the optimizer got, or if only parameters in float16 became so, and the eps of the optimizer is zero in
this dtype (rounded_eps), there is no other finding. Looks that would take more than a hundredth of the time are left
out, as are programs with more than 16 optimizers, and of tensor subclasses all but the local part of a `DTensor`."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, names_text, rule_of
from stepscope.viewer.findings.values import exploding_values, misread_dtype, nonfinite, uninitialised_read
from stepscope.viewer.findings.values.learning_rates import outlier_text
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import capitalized, plural
from stepscope.viewer.values.queries.learning_rates import rounded_eps
from stepscope.viewer.values.queries.nonfinite_parameters import BadParameters, nonfinite_parameters

SUMMARY = "Parameters became NaN or infinite"
TITLE_IS_MEASURED = True
_UNNAMED = "a parameter that no module has"
_MAKES_NAN = "the first launch that makes NaN"
_MAKES_INFINITY = "what makes an infinity, a launch, or the program itself, for example as a mask"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer whose NaN and infinities no other finding tells."""
    found = nonfinite_parameters(evidence.trace)
    if not found:
        return []
    with_values = _told_with_values(evidence)
    by_eps = {(one.log, one.name, one.file, one.line) for one in rounded_eps(evidence.trace)}
    told = {one.optimizer for one in found if one.log in with_values}
    others = [one for one in found if not (one.eps_may_be_cause and (one.log, *one.optimizer) in by_eps)]
    first = {one.optimizer: one for one in reversed(others) if one.optimizer not in told}
    return [_finding(evidence, one) for one in first.values()]


def what_holds(one: BadParameters) -> str:
    """Return which parameters hold what, as in ``net.0.weight and 3 other parameters hold NaN``."""
    first, others = [*_names(one.names), _UNNAMED][0], one.nonfinite - 1
    more = f" and {plural(others, 'other parameter')} hold" if others else " holds"
    return f"{capitalized(first) if first == _UNNAMED else first}{more} {'NaN' if one.is_nan else 'infinities'}"


def _told_with_values(evidence: Evidence) -> set[int]:
    """Return the logs in which recorded values tell where the NaN of the parameters comes from."""
    told = [one for module in (nonfinite, exploding_values) for _, one in module.find(evidence) if _is_its_cause(one)]
    read = [one for module in (uninitialised_read, misread_dtype) for _, one in module.find(evidence)]
    return {one.log for one in (*told, *read) if one.log is not None}


def _is_its_cause(finding: Finding) -> bool:
    """Return whether NaN or infinities leave a graph, or have entered it."""
    return finding.severity == "critical" or finding.evidence.get("origin") == "came in"


def _finding(evidence: Evidence, one: BadParameters) -> Timed:
    source, names, before = line_at(one.file, one.line), _names(one.names), _names(one.nan_before)
    return one.time_unix_ns, Finding(
        kind="nonfinite_parameters",
        severity="critical" if one.is_nan else "info",
        title=_title(one, place(source), before),
        proof=[
            f"{one.name} has {plural(one.parameters, 'parameter')}, of which {one.nonfinite:,}"
            f" {'is' if one.nonfinite == 1 else 'are'} NaN or infinite: {names_text(names, one.nonfinite)}.",
            *([f"{names_text(before)} held NaN already before, which may have spread."] if before else []),
            *(
                [f"Of the parameters, {one.infinite_before:,} held infinities already before."]
                if one.infinite_before
                else []
            ),
            *outlier_text(one),
            f"To find {_MAKES_NAN if one.is_nan else _MAKES_INFINITY}, record with --level values"
            f" --steps {one.first_step}:{one.last_step + 1}.",
        ],
        rule=rule_of(__doc__),
        evidence={
            "optimizer": one.name,
            **attributes(one, "steps", "finite_steps", "parameters", "nonfinite", "is_nan", "first_step", "last_step"),
            "names": names,
            "nan_before": before,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )


def _title(one: BadParameters, at: str, before: Sequence[str]) -> str:
    may_be_infinite = one.infinite_before != 0
    subject = "it" if one.nonfinite == 1 else "they" if before or may_be_infinite else "all"
    were = "held no NaN" if one.is_nan and may_be_infinite else f"{'was' if one.nonfinite == 1 else 'were'} finite"
    earlier = f"{subject} {were}"
    optimizer = f" of {one.name}{at}"
    if one.is_last:
        return f"{what_holds(one)} at the end of the recording; {earlier} {after(one.finite_steps)}{optimizer}"
    return f"{what_holds(one)} {after(one.steps)}{optimizer}; {earlier} {after(one.finite_steps)}"


def after(steps: int) -> str:
    """Return when so many steps were done; a recording may begin after others."""
    if steps < 2:
        return f"{'after' if steps else 'before'} the first recorded step"
    return f"after {steps:,} recorded steps"


def _names(texts: str) -> list[str]:
    return [name or _UNNAMED for name in orjson.loads(texts)]
