"""Before each of five or more successive steps of an optimizer, `zero_grad` cleared gradients that no step had used, as
often before each, and the step used those of the last backward pass alone. The usual cause is a `zero_grad` inside the
loop that accumulates the gradients of several small batches. A call of `zero_grad` counts if a backward pass of
compiled code has run since the call before, after which no optimizer stepped and the parameter was not written, and if
the same compiled code computed the gradients of the step; the first call after each step does not count. Every
optimizer of the program must do so, so that networks that are trained against each other do not count, and neither do
programs that compute gradients of their inputs, as for adversarial examples. The finding is for information: if the
program uses the gradients of each pass otherwise, as for a perturbation of the parameters, or copies them, as for their
norms or to combine those of several losses, nothing is lost. Copies leave no trace, and neither does a perturbation
that is written to the `data` of the parameters. Gradients that are cleared in other ways than by `zero_grad` of an
optimizer of `torch.optim` or of a module, those of tensor subclasses, such as DTensor, and programs with more than 16
optimizers are not looked at."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.cleared_gradients import Cleared, cleared_unused

SUMMARY = "Gradients are cleared before a step uses them"
TITLE_IS_MEASURED = True

LEAST_STEPS = 5
_MOST_WITHOUT = 0.1
"""Share of steps without unused gradients, as the last ones of epochs may be."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer."""
    return [_finding(evidence, one) for one in cleared_unused(evidence.trace, LEAST_STEPS, _MOST_WITHOUT)]


def _finding(evidence: Evidence, one: Cleared) -> Timed:
    step, zero_grad = line_at(one.file, one.line), line_at(one.zero_grad_file, one.zero_grad_line)
    passes = one.cleared + 1
    return one.time_unix_ns, Finding(
        kind="cleared_gradients",
        severity="info",
        title=f"{one.name}{place(step)} uses only the last of {passes:,} backward passes before each step:"
        f" zero_grad(){place(zero_grad)} clears the gradients of the others",
        proof=[
            f"This happened in {one.steps:,} successive steps. To accumulate gradients, call zero_grad() once after"
            " each step. If the program uses the gradients of each pass otherwise, as for a perturbation of the"
            " parameters, or copies them, nothing is lost."
        ],
        rule=rule_of(__doc__),
        evidence={"optimizer": one.name, "steps": one.steps, "passes": passes, "cleared": one.cleared},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=zero_grad or step,
    )
