"""Builds the findings about backward graphs that draw random numbers of their forward graph anew."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.viewer.compiles.queries.drawn_twice import DrawnTwice, drawn_twice
from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    as_subject,
    attributes,
    compile_page,
    grouped,
    in_logs,
    logs_of,
)
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.text.formats import plural

_ISSUE = "https://github.com/pytorch/pytorch/issues/190758"


def of_drawn_again(evidence: Evidence, rule: str) -> Iterator[Timed]:
    """Yield one finding for each compiled function, with all of its compiles in all logs."""
    for same in grouped(drawn_twice(evidence.trace), lambda one: (one.frame or one.compile_id, *one.sources)):
        yield same[0].time_unix_ns, _finding(evidence, same, rule)


def _finding(evidence: Evidence, same: list[DrawnTwice], rule: str) -> Finding:
    one, ran = same[0], sum(each.calls for each in same)
    logs = len({each.log for each in same})
    source = one.sources[0] if one.sources else None
    others = f" and at {plural(len(one.sources) - 1, 'other line')}" if len(one.sources) > 1 else ""
    calls = f"; this ran in {plural(ran, 'call')}{in_logs(logs)}" if ran else ""
    name = as_subject(one.frame or f"compile {one.compile_id}")
    nodes = ", ".join([*one.names[:MOST_EXAMPLES], *["…"] * (len(one.names) > MOST_EXAMPLES)])
    saving = "saving it" if len(one.names) == 1 else "saving them"
    page = compile_page(one.log, one.compile_id)
    return Finding(
        kind="other_recomputation",
        severity="critical",
        title=f"The backward pass of {name} draws new random numbers{place(source)}{others} in place of those of the"
        " forward pass, so that its gradients are those of another computation",
        proof=[
            f"The graphs of both passes have {nodes}, which the partitioner recomputes instead of {saving}{calls}.",
            "With torch._functorch.config.activation_memory_budget below 1 the partitioner also recomputes random"
            f" numbers ({_ISSUE}): set it to 1, or train without dropout.",
        ],
        links=[ProofLink(f"open compile {one.compile_id}", page)],
        rule=rule,
        evidence={"nodes": one.names[:MOST_EXAMPLES], "compile_id": one.compile_id, "calls": ran, **logs_of(logs)},
        page=page,
        rank=evidence.rank_of(one.log),
        source=source,
        **attributes(one, "step", "log", "graph"),
    )
