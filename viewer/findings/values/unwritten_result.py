"""A graph returned memory that its call allocated and that no launch wrote, so that its content is arbitrary. No
statement of the generated code but the allocation and the return names the memory. The finding is critical if the
program gives the tensor to an operator of its own, or to one that changes its argument: the compiler took the operator
for one that changes nothing, and left it out. Otherwise the program only allocates the tensor and may write it later,
so the finding is for information; there is none if a graph break follows in the same function."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, open_buffer, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.unwritten_results import UnwrittenResult, unwritten_results
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import format_bytes, plural

SUMMARY = "A graph returns memory that nothing wrote"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per result of a graph."""
    broken = {(event.log, event.compile_id) for event in evidence.compile_events("graph_break")}
    found = unwritten_results(evidence.trace)
    return [_finding(evidence, one) for one in found if one.given_to or (one.log, one.compile_id) not in broken]


def _finding(evidence: Evidence, one: UnwrittenResult) -> Timed:
    links = open_buffer(evidence.trace, one.graph, one.buffer)
    operator = (one.given_to or "").removeprefix("torch.ops.").removesuffix(".default")
    if one.given_to:
        title = (
            f"{one.name} is returned although nothing has written it: {operator}{place(one.source)}, which gets it, was"
            " left out of the generated code"
        )
    else:
        title = f"{one.name}{place(one.source)} is returned as it was allocated, and nothing has written it"
    return one.start_ns, Finding(
        kind="unwritten_result",
        severity="critical" if one.given_to else "info",
        title=title,
        proof=[
            f"{one.buffer} has {format_bytes(one.storage_bytes)}, and the generated code only allocates and returns it,"
            f" in {plural(one.calls, 'call')} from step {one.step} on"
        ],
        links=links,
        rule=rule_of(__doc__),
        evidence={
            **attributes(one, "name", "storage_bytes", "calls"),
            "operator": operator or None,
            "compile_id": one.compile_id or None,
        },
        page=links[-1].page if links else f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        **attributes(one, "step", "graph", "launch", "buffer", "log", "source"),
    )
