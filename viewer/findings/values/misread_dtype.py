"""A custom operator returned a tensor of another dtype than its fake kernel promises, and a generated kernel, which was
compiled for the promised dtype, takes the bytes of the tensor for numbers of that dtype. Generated code compares only
sizes and strides. The dtype of the tensor is recorded, and the one that the kernel reads is that of its pointer in the
code. The NaN and infinities that the kernel makes belong to this finding. Operators of PyTorch do not count."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, open_launch, rule_of
from stepscope.viewer.findings.values.operations import fused, place, places, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.hidden_aliases import operator_name
from stepscope.viewer.graphs.queries.misread_dtypes import MisreadDtype, misread_dtypes
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.nonfinite import launch_place

SUMMARY = "A kernel reads a tensor as another dtype"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line that calls an operator, and line that reads its result."""
    found = [_finding(evidence.trace, one) for one in misread_dtypes(evidence.trace)]
    return [_joined(same) for same in grouped(found, lambda timed: (timed[1].log, timed[1].title, timed[1].source))]


def _joined(same: list[Timed]) -> Timed:
    """Return the first of the findings of several launch sites, with how many others there are."""
    time_ns, first = same[0]
    count = plural(len(same) - 1, "other launch site")
    others = [f"The same happens at {count} of these lines"] if len(same) > 1 else []
    return time_ns, replace(first, proof=[*first.proof, *others])


def _finding(trace: Trace, one: MisreadDtype) -> Timed:
    sites = {site.site: site for site in site_rows(trace, [one.producer, one.reader])}
    producer, reader, where = sites[one.producer], sites[one.reader], launch_place(trace, one.launch)
    operator, source = operator_name(producer.kernel), source_line(producer)
    return where.time_unix_ns, Finding(
        kind="misread_dtype",
        severity="critical",
        title=f"{operator}{place(source)} returns {one.returned}, although its fake kernel promises {one.promised}:"
        f" {fused(reader)}{places(reader)} reads its bytes as {one.promised}",
        proof=[
            f"{reader.kernel} was compiled to read {one.promised}, and {one.name} has {prod(one.size):,} elements of"
            f" {one.returned} from {where.text} on"
        ],
        links=[open_launch(one.launch)],
        rule=rule_of(__doc__),
        evidence={"operator": operator, **attributes(one, "name", "returned", "promised", "size")},
        page=f"/steps/{one.step}?log={one.log}&launch={one.launch}",
        rank=where.rank,
        kernel=reader.kernel,
        argument=one.name,
        source=source,
        **attributes(one, "log", "step", "graph", "launch"),
    )
