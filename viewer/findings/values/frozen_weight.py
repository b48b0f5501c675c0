"""A weight of which `torch._inductor.config.freezing` made a constant of a graph changed later, and the graph ran with
the old constant. Freezing computes with the weights at the moment of the compile: transposed, folded and reordered
copies of them do not follow. Weights that the graph uses unchanged do follow, and are not reported. The finding names
the weights of a graph and the step of the first call after the first change. Changes that autograd does not count, as
through `.data`, are seen only when the recording ends, so that their step is unknown; the finding is then a warning,
because all calls may have been before the change. Compile again after changing weights (`torch.compiler.reset()`), or
without freezing."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.frozen_weights import FrozenChanges, frozen_changes, used_at

SUMMARY = "A frozen weight changed after the compile"
TITLE_IS_MEASURED = False
_ADVICE = (
    "Call torch.compiler.reset() after weights have changed, or compile with torch._inductor.config.freezing = False."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per graph."""
    return [_finding(evidence, one) for one in frozen_changes(evidence.trace)]


def _finding(evidence: Evidence, one: FrozenChanges) -> Timed:
    sites = site_rows(evidence.trace, [one.site]) if one.site is not None else []
    source = used_at(evidence.trace, one.graph, one.names[0]) or (source_line(sites[0]) if sites else None)
    seen = one.step is not None
    title = f"The frozen weight {one.names[0]} of graph {one.graph}{place(source)}"
    title += f" changed before step {one.step}" if seen else " is no longer what it was at the compile"
    others = len(one.names) - 1
    proof = (
        [f"{plural(others, 'other weight')} of the graph changed, too: {names_text(one.names[1:])}"] if others else []
    )
    proof.append(_ADVICE)
    return one.time_unix_ns, Finding(
        kind="frozen_weight",
        severity="critical" if seen else "warning",
        title=f"{title}, and the graph still uses its old constant",
        proof=proof,
        rule=rule_of(__doc__),
        evidence={"weights": one.names, "step": one.step},
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        log=one.log,
        step=one.step,
        graph=one.graph,
        source=source,
    )
