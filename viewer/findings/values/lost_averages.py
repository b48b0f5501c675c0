"""Builds the findings about moving averages whose dtype rounds small updates away."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, names_text
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.rounded_averages import RoundedAverage, rounded_averages
from stepscope.viewer.overview.rows import Finding

_DTYPES = {"bf16": "bfloat16", "f16": "float16"}


def of_lost_averages(evidence: Evidence, rule: str) -> Iterator[Timed]:
    """Yield one finding for each line of each log."""
    told = set[object]()
    for one in rounded_averages(evidence.trace):
        key = (one.log, one.source or one.graph)
        if key not in told:
            told.add(key)
            yield one.start_ns, _finding(evidence, one, rule)


def _finding(evidence: Evidence, one: RoundedAverage, rule: str) -> Finding:
    names, dtype = [name for name in one.names if name], _DTYPES[one.dtype]
    subject = names_text(names, len(one.names)) if names else "An average in compiled code"
    does, it, its = ("do", "them", "their") if len(one.names) > 1 and names else ("does", "it", "its")
    return Finding(
        kind="lost_update",
        severity="warning",
        title=f"{subject}{place(one.source)} {does} not move towards values that differ from {it} by less than about"
        f" {one.factor:.2g} times {its} magnitude: {dtype} rounds updates with a weight of {number(one.weight)} away",
        proof=[
            f"In {dtype}, an element of this moving average stays as it is unless the new value differs from it by"
            f" about {one.factor:.2g} times its magnitude. Values that spread far more than that around their mean"
            " still move it; an average in float32 follows all values."
        ],
        rule=rule,
        evidence={"tensors": names, "dtype": dtype, **attributes(one, "weight", "factor")},
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        **attributes(one, "step", "graph", "log", "source"),
    )
