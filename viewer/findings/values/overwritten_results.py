"""A program keeps the results of several calls of a graph, but they are one tensor, or views of one tensor, which the
graph changes in place in each call: an input such as a buffer of a module, into which it writes its result. So all of
them have the values of the last call. The same is true of several results of `state_dict()`. The references to each
input that a graph writes are counted in some of its calls, ten in a row from the second, the eighth, about the 50th and
the 500th, among those whose memory is recorded; if there are four more than in an earlier one, and four or more
elements of one list, dict or other container, or as many tensors, are the input or show the same elements of it, they
are reported. Views of different parts do not count, and the same tensor in a tuple or an object per call is not seen.
Neither is a list that only calls between these fill. A clone() of each result, or a copy.deepcopy() of each
`state_dict()`, keeps its values."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, names_text, program_name, rule_of
from stepscope.viewer.findings.values.operations import line_that_names, place
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.memory.queries.kept_results import KeptResult, kept_results, last_writer
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import holder_text

SUMMARY = "Kept tensors share the memory of one tensor, which each call changes"
TITLE_IS_MEASURED = False


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per container of each graph."""
    groups = grouped(kept_results(evidence.trace), lambda one: (one.log, one.graph, one.holder))
    return [_finding(evidence, group) for group in groups]


def _finding(evidence: Evidence, group: list[KeptResult]) -> Timed:
    trace, one = evidence.trace, group[0]
    writer = last_writer(trace, one.graph, one.buffer)
    source = (
        line_that_names(site_rows(trace, [writer])[0], program_name(trace, one.graph, one.buffer))
        if writer is not None
        else None
    )
    names = names_text([program_name(trace, same.graph, same.buffer) for same in group])
    held = f", held by {holder_text(one.holder)}," if one.holder else ""
    return one.time_unix_ns, Finding(
        kind="overwritten_results",
        severity="warning",
        title=f"{one.kept} kept tensors{held} share the memory of {names}, which each call overwrites{place(source)}",
        proof=[
            "All of them have the values of the last call. A clone() of each result, or a copy.deepcopy() of each"
            " state_dict(), keeps its values."
        ],
        rule=rule_of(__doc__),
        evidence={"tensors": [same.buffer for same in group], "holders": [one.holder] if one.holder else []},
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        source=source,
        **attributes(one, "step", "graph", "log", "buffer"),
    )
