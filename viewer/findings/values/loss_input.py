"""A loss gets what it does not expect. In the first case, targets of size (N) are subtracted from predictions of size
(N, 1), which a layer computed. They broadcast to (N, N), and the loss is the mean or sum of all of these errors, as if
each prediction belonged to all targets. In the second case, a function of torch.nn.functional that expects logits gets
the results of softmax or sigmoid, which it applies itself. In the third case, a function that expects logarithms of
probabilities gets the results of softmax, of sigmoid or of a linear layer. The graphs of Dynamo show losses in compiled
code. Targets there are computed from inputs of the graph without layers and parameters, and predictions that are also
compared with each other do not count. Of losses outside of compiled code, the nodes of autograd between its results and
the backward pass show the functions, and the sizes of what they compute, but no targets and no `kl_div`: results of a
layer of size (N, 1) that nothing else uses count as combined with all targets if their errors have the size (N, N). The
line is the first one from the call of the compiled code on that looks as if it computed the loss, else that of the
backward pass. There is one finding per loss and line of the program."""

from __future__ import annotations

from itertools import chain

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.loss_inputs import LossInput, Mistake, loss_inputs
from stepscope.viewer.graphs.queries.loss_paths import eager_losses
from stepscope.viewer.overview.rows import Finding

SUMMARY = "A loss gets inputs that it does not expect"
TITLE_IS_MEASURED = True

_ADVICE: dict[Mistake, str] = {
    "all pairs": "Targets of size (N) do so. squeeze(1) on the predictions, or unsqueeze(1) on the targets, gives both"
    " the same size.",
    "probabilities": "Pass the logits; the probabilities are only needed for predictions.",
    "no logarithm": "log_softmax or logsigmoid computes the logarithms in a stable way.",
}


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line and loss of each log."""
    first: dict[object, LossInput] = {}
    for one in chain(loss_inputs(evidence.trace), eager_losses(evidence.trace)):
        first.setdefault((one.log, one.loss, place(one.source)), one)
    return [_finding(evidence, one) for one in first.values()]


def _finding(evidence: Evidence, one: LossInput) -> Timed:
    return one.start_ns, Finding(
        kind="loss_input",
        severity="warning",
        title=_title(one),
        proof=[_ADVICE[one.mistake]],
        rule=rule_of(__doc__),
        evidence=attributes(one, "mistake", "loss", "given", "size"),
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        **attributes(one, "step", "graph", "log", "source"),
    )


def _title(one: LossInput) -> str:
    if one.mistake == "all pairs":
        return (
            f"The loss{place(one.source)} combines each prediction with all targets: predictions of size"
            f" [{one.size}, 1] broadcast to [{one.size}, {one.size}]"
        )
    given = f"the results of {one.given}{place(one.given_source)}"
    if one.mistake == "no logarithm":
        return f"{one.loss}{place(one.source)} gets {given}, but expects logarithms of probabilities"
    return f"{one.loss}{place(one.source)} gets {given}, but expects logits and applies {one.given} itself"
