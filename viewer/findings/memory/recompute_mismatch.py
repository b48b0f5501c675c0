"""A reordering pass of the scheduler updates its memory figures after each swap, and the updated figures differ from a
full recomputation. There is one finding per pass of each compiled graph. It is information if only the peak differs and
the difference is within the peak budget of the pass; otherwise it is a warning, because the pass then decides by wrong
figures."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    attributes,
    grouped,
    names_text,
    rule_of,
    times,
)
from stepscope.viewer.memory.queries.graph_index import named_graph
from stepscope.viewer.memory.queries.recompute import RecomputeRow, recompute_mismatches
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes

SUMMARY = "Memory figures of a reordering pass differ from a full recomputation"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per pass of a graph, separate ones for what the budget explains."""
    groups = grouped(
        recompute_mismatches(evidence.trace),
        lambda row: (row.log, row.compile_id, row.graph, row.subgraph, row.pass_name, row.is_explained),
    )
    return [_finding(evidence.trace, group) for group in groups]


def _finding(trace: Trace, group: list[RecomputeRow]) -> Timed:
    first = group[0]
    explained = ", which is within the allowed peak budget and no error" if first.is_explained else ""
    return first.time_unix_ns or 0, Finding(
        kind="recompute_mismatch",
        severity="info" if first.is_explained else "warning",
        title=(
            f"The memory figures of {first.pass_name}{_where(trace, first)} are wrong{times(len(group))}: "
            f"{_peak(first)}{explained}"
        ),
        proof=[f"After {_moving(first)}, {_differing(first.reasons)} from a full recomputation."],
        rule=rule_of(__doc__),
        evidence={
            "mismatches": len(group),
            **attributes(first, "swap", "candidate"),
            "group": first.group[:MOST_EXAMPLES],
            **attributes(first, "reasons", "reason_snodes", "peak_before_bytes", "peak_after_bytes"),
            **attributes(first, "allowed_peak_bytes", "is_explained", "peak_snode"),
            "peak_index": first.peak_snodes[0] if first.peak_snodes else None,
            "peak_snodes": first.peak_snodes[:MOST_EXAMPLES],
            "snodes": first.snodes,
            "swapped": [node.words for node in first.swapped[:MOST_EXAMPLES]],
            **attributes(first, "compile_id", "subgraph", "found_by"),
        },
        page=f"/recompute/{first.recompute}",
        **attributes(first, "rank", "graph", "log"),
    )


def _where(trace: Trace, row: RecomputeRow) -> str:
    label = named_graph(trace, row.graph) if row.graph is not None else row.compile_id
    part = f" ({row.subgraph})" if row.subgraph is not None else ""
    return f" of {label}{part}" if label is not None else part


def _moving(row: RecomputeRow) -> str:
    """Return text like ``moving op14 (aten.mm) past op13``."""
    operators = {node.name: node.operators for node in row.swapped}
    named = [name + _in_brackets(operators.get(name, [])) for name in (row.candidate, *row.group)]
    past = f" past {names_text(named[1:])}" if row.group else ""
    return f"moving {named[0]}{past}"


def _differing(reasons: list[str]) -> str:
    """Return text like ``the figures for peak and candidate differ``."""
    names = " and ".join(part for part in (", ".join(reasons[:-1]), *reasons[-1:]) if part)
    return f"the figures for {names} differ" if names else "the figures differ"


def _in_brackets(operators: list[str]) -> str:
    return f" ({names_text([name.removesuffix('.default') for name in operators])})" if operators else ""


def _peak(row: RecomputeRow) -> str:
    """Return text like ``peak 131.1 kB (+16.4 kB) at op14, 13 of 16``, with positions from 0."""
    change = row.peak_after_bytes - row.peak_before_bytes
    place = f" at {row.peak_snode}, node {row.peak_snodes[0]} of {row.snodes}" if row.peak_snodes else ""
    sign = "-" if change < 0 else "+"
    return f"the peak is {format_bytes(row.peak_after_bytes)} ({sign}{format_bytes(abs(change))}){place}"
