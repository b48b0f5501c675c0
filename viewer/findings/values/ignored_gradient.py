"""A backward graph returns gradients that do not depend on the gradient which it gets, because the forward graph has
computed them already. The `backward` of a torch.autograd.Function that does not multiply by the gradient of its output
is the cause, and the finding names its line. The gradients are then wrong unless the gradient of the output is 1. If
the graph gets the gradient of a single number, such as that of a loss, the finding is information, because this
gradient may always be 1; it is not where the loss is scaled, weighted, or averaged over several passes. Constants that
`backward` returns do not count. The graphs show this; values are not needed."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.ignored_gradients import IgnoredGradient, ignored_gradients
from stepscope.viewer.overview.rows import Finding

SUMMARY = "Gradients do not depend on the gradient of the output"
TITLE_IS_MEASURED = False


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line of a program in each log."""
    first: dict[object, IgnoredGradient] = {}
    for one in ignored_gradients(evidence.trace):
        first.setdefault((one.log, one.source), one)
    return [_finding(evidence, one) for one in first.values()]


def _finding(evidence: Evidence, one: IgnoredGradient) -> Timed:
    return one.start_ns, Finding(
        kind="ignored_gradient",
        severity="info" if one.is_of_loss else "warning",
        title=f"The backward of a torch.autograd.Function{place(one.source)} ignores the gradient that it gets:"
        f" {one.ignoring:,} of {one.gradients:,} gradients of the graph do not depend on it",
        proof=[
            "The forward graph has computed these gradients already. Multiply what backward() returns by the gradient"
            " of the output, which is its argument; torch.autograd.gradcheck tests such a function."
        ],
        rule=rule_of(__doc__),
        evidence={"ignoring": one.ignoring, "gradients": one.gradients},
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        **attributes(one, "step", "graph", "log", "source"),
    )
