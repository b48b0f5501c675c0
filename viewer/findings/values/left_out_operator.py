"""A custom operator that the program calls is not in the generated code, so that compiled code never runs it. The
operator has no result that is used and declares no argument that it changes, and the compiler leaves out what has no
effect. If the operator writes into a tensor, it must be named in `mutates_args`, or marked in the schema as in
``Tensor(a!)``. Operators do not count if a graph of the compile has anything else of their line, of which they may
consist, or if they get a tensor that the program allocates and uses nowhere else. Where memory is read or returned that
the operator was to write, the finding is of the kind uninitialised_read or unwritten_result instead."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.argument_facts import uninitialised_reads
from stepscope.viewer.graphs.queries.graphs import graph_row
from stepscope.viewer.graphs.queries.left_out_operators import LeftOutOperator, left_out_operators
from stepscope.viewer.graphs.queries.unwritten_results import unwritten_results
from stepscope.viewer.memory.queries.graph_index import named_graph
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural

SUMMARY = "A custom operator was left out of the generated code"
TITLE_IS_MEASURED = True

_CACHED = (
    "The code came from a cache, which does not notice if the schema of an operator changes; --fresh-cache compiles"
    " again."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per operator and line of the program of each log."""
    trace = evidence.trace
    groups: dict[object, list[LeftOutOperator]] = {}
    for one in left_out_operators(trace):
        groups.setdefault((one.log, one.operator, place(one.source)), []).append(one)
    told = _told(trace) if groups else set()
    return [_finding(evidence, of_line) for of_line in groups.values() if not told & {one.graph for one in of_line}]


def _told(trace: Trace) -> set[int]:
    """Return the graphs in which memory that nothing wrote is read or returned."""
    read = {read.graph for read in uninitialised_reads(trace) if not read.is_empty}
    return read | {one.graph for one in unwritten_results(trace) if one.given_to}


def _finding(evidence: Evidence, of_line: list[LeftOutOperator]) -> Timed:
    first, calls = of_line[0], sum(one.calls for one in of_line)
    graph = graph_row(evidence.trace, first.graph)
    cached = [_CACHED] if graph is not None and graph.cached else []
    more = f" and of {plural(len(of_line) - 1, 'other graph')}" if len(of_line) > 1 else ""
    return first.start_ns, Finding(
        kind="left_out_operator",
        severity="warning",
        title=f"{first.operator}{place(first.source)} was left out of the generated code: it has no result"
        " that is used and declares no argument that it changes",
        proof=[f"{plural(calls, 'call')} of {named_graph(evidence.trace, first.graph)}{more} ran without it", *cached],
        rule=rule_of(__doc__),
        evidence={**attributes(first, "operator"), "calls": calls},
        page=f"/graphs/{first.graph}",
        rank=evidence.rank_of(first.log),
        **attributes(first, "step", "graph", "log", "source"),
    )
