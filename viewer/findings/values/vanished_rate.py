"""The learning rate of an optimizer of `torch.optim` fell to a hundred-millionth of its largest or less, or to zero,
and stayed there for at least ten training steps and a quarter of all; or it was that low in the first steps, for as
many of them, and rose later. Such steps hardly change a parameter, and with a rate of zero they change none. A
scheduler that is called after each batch although its settings count epochs is the usual cause of a fall, and one that
is called after each epoch although its warm-up counts batches that of a late rise. The finding names the line that
calls the step of the scheduler of torch.optim.lr_scheduler that had stepped last. Programs in which several lines step
optimizers, and rates that are tensors, are left out."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.vanished_rates import VanishedRate, rates_before_a_rise, vanished_rates

SUMMARY = "The learning rate was almost zero for many steps"
TITLE_IS_MEASURED = True

MOST_SHARE, LEAST_STEPS, LEAST_PART = 1e-8, 10, 0.25
_STEPPED_TOO_OFTEN = (
    "The usual cause is a scheduler that is stepped after each batch, although its settings count epochs."
)
_STEPPED_TOO_SELDOM = (
    "The usual cause is a scheduler that is stepped after each epoch, although its warm-up counts batches."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer for a rate that rose late, and one for a rate that fell."""
    found = [
        *((one, True) for one in rates_before_a_rise(evidence.trace, MOST_SHARE, LEAST_STEPS)),
        *((one, False) for one in vanished_rates(evidence.trace, MOST_SHARE, LEAST_STEPS)),
    ]
    return [_finding(evidence, one, rises) for one, rises in found if one.low >= LEAST_PART * one.steps]


def _finding(evidence: Evidence, one: VanishedRate, rises: bool) -> Timed:
    source = line_at(one.file, one.line)
    scheduler = line_at(one.scheduler_file, one.scheduler_line)
    return one.time_unix_ns, Finding(
        kind="vanished_rate",
        severity="warning",
        title=_title(one, rises, place(source)),
        proof=[*_changed_by(one), _STEPPED_TOO_SELDOM if rises else _STEPPED_TOO_OFTEN],
        rule=rule_of(__doc__),
        evidence={"optimizer": one.name, "rises": rises, **attributes(one, "largest", "rate", "steps", "low")},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=scheduler or source,
    )


def _changed_by(one: VanishedRate) -> list[str]:
    """Return which scheduler had changed the rate, and the line that calls it."""
    at = place(line_at(one.scheduler_file, one.scheduler_line))
    return [f"The scheduler {one.scheduler}{at} has changed the rate."] if one.scheduler else []


def _title(one: VanishedRate, rises: bool, at: str) -> str:
    rate, low = f"The learning rate of {one.name}{at}", number(one.rate)
    course = f"was {low} at first" if rises else f"fell from {number(one.largest)} to {low}"
    which = f"the {'first' if rises else 'last'} {one.low:,} of {one.steps:,} training steps"
    return f"{rate} {course}, so that {which} {'hardly change a' if one.rate else 'change no'} parameter"
