"""A reordering pass of the scheduler carried other memory figures along than a full recomputation gives after a swap.
One finding per pass of each compiled graph. Where only the peak differs and it is within what the peak budget allows,
that explains it: info; otherwise the pass decides by wrong figures: a warning."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, grouped, rule_of, times
from stepscope.viewer.formats import format_bytes
from stepscope.viewer.queries.memory_mismatches import recompute_mismatches
from stepscope.viewer.queries.memory_places import label_of
from stepscope.viewer.queries.rows import Finding
from stepscope.viewer.queries.rows_of_memory import RecomputeRow
from stepscope.viewer.store.open import Trace


def find(evidence: Evidence) -> list[Timed]:
    """One finding per pass of a graph, those that the budget explains apart."""
    groups = grouped(
        recompute_mismatches(evidence.trace),
        lambda row: (row.log, row.compile_id, row.graph, row.subgraph, row.pass_name, row.is_explained),
    )
    return [_finding(evidence.trace, group) for group in groups]


def _finding(trace: Trace, group: list[RecomputeRow]) -> Timed:
    first = group[0]
    change = first.peak_after_bytes - first.peak_before_bytes
    sign = "-" if change < 0 else "+"
    explained = ", within the allowed peak budget: no error" if first.is_explained else ""
    return first.time_unix_ns or 0, Finding(
        kind="recompute_mismatch",
        severity="info" if first.is_explained else "warning",
        title=(
            f"{first.pass_name}{_where(trace, first)} carried wrong memory figures along{times(len(group))}: "
            f"moving {first.candidate}, {', '.join(first.reasons) or 'figures'} differ; peak {format_bytes(first.peak_after_bytes)} "
            f"({sign}{format_bytes(abs(change))}){explained}"
        ),
        rule=rule_of(__doc__),
        evidence={
            "mismatches": len(group),
            "swap": first.swap,
            "candidate": first.candidate,
            "group": first.group[:MOST_EXAMPLES],
            "reasons": first.reasons,
            "reason_snodes": first.reason_snodes,
            "peak_before_bytes": first.peak_before_bytes,
            "peak_after_bytes": first.peak_after_bytes,
            "allowed_peak_bytes": first.allowed_peak_bytes,
            "is_explained": first.is_explained,
            "peak_snodes": first.peak_snodes[:MOST_EXAMPLES],
            "snodes": first.snodes,
            "compile_id": first.compile_id,
            "subgraph": first.subgraph,
            "found_by": first.found_by,
        },
        page=f"/recompute/{first.recompute}",
        rank=first.rank,
        graph=first.graph,
        log=first.log,
    )


def _where(trace: Trace, row: RecomputeRow) -> str:
    label = label_of(trace, row.graph) if row.graph is not None else row.compile_id
    part = f" ({row.subgraph})" if row.subgraph is not None else ""
    return f" of {label}{part}" if label is not None else part
