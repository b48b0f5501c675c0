"""A graph that computes no gradients, as in an evaluation, drops values at random: a line of the program calls a
dropout of torch.nn.functional without its argument `training`, whose default is True, so that `model.eval()` has no
effect on it. The graphs of Dynamo show the call and its line. Whether the program wants it is unknown, as in a forward
pass of training under torch.no_grad(), so that this is information. Modules such as nn.Dropout, and calls with
`training=True`, do not count. There is one finding per line of each log."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.inference_dropouts import InferenceDropout, inference_dropouts
from stepscope.viewer.overview.rows import Finding

SUMMARY = "A functional dropout is active in a graph without gradients"
TITLE_IS_MEASURED = False


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line of each log."""
    first: dict[object, InferenceDropout] = {}
    for one in inference_dropouts(evidence.trace):
        first.setdefault((one.log, one.source or one.graph), one)
    return [_finding(evidence, one) for one in first.values()]


def _finding(evidence: Evidence, one: InferenceDropout) -> Timed:
    return one.start_ns, Finding(
        kind="active_dropout",
        severity="info",
        title=f"F.{one.function}(){place(one.source)} also drops values in a graph that computes no gradients, because"
        " `training` is True by default",
        proof=[
            "model.eval() has no effect on a function. In a module, pass training=self.training, or use nn.Dropout."
        ],
        rule=rule_of(__doc__),
        evidence=attributes(one, "function"),
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        **attributes(one, "step", "graph", "log", "source"),
    )
