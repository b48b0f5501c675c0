"""Ranks of one run do not do the same: they compile other frames or graphs, decide otherwise about caches, launch other
collectives, make tensors of other shapes, or one takes at least twice as long for a compile as the median rank and a
second longer. Critical: collectives that come in another order, with other sizes or in other process groups, because
the ranks then wait for each other for ever. Names of process groups may differ where one always stands for the other.
Information only: ranks that compile different programs from their first graph on, in runs of equal width, as the
stages of a pipeline do, while the collectives of the groups that they share agree. What one side did not log is no
difference. The last log of each rank is compared; one finding per aspect."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.overview.rows import Finding, Severity
from stepscope.viewer.ranks.queries.ranks import AspectRow, FirstDifference, ranks

SUMMARY = "Ranks differ"

WHAT = {
    "collectives": "collectives",
    "compile_ids": "what they compile",
    "graphs": "graphs",
    "tensors": "the shapes of tensors",
    "caches": "cache decisions",
    "times": "time per compile",
}
_HANGS = ("order", "size", "group")


def find(evidence: Evidence) -> list[Timed]:
    """One finding per aspect in which ranks differ."""
    if len(evidence.runs) < 2:
        return []
    starts = {run.log: run.start_unix_ns or 0 for run in evidence.runs}
    return [
        (starts[row.first.right], _finding(evidence, row, row.first))
        for row in ranks(evidence.trace).aspects
        if row.first is not None
    ]


def _finding(evidence: Evidence, row: AspectRow, first: FirstDifference) -> Finding:
    return Finding(
        kind="rank_divergence",
        severity=severity(row, first),
        title=title(row, first),
        rule=rule_of(__doc__),
        evidence={
            "aspect": row.aspect,
            "groups": [{"ranks": group.name, "items": group.items} for group in row.groups],
            "left_rank": first.left_rank,
            "left_place": first.left_index + 1,
            "left_items": first.left_items,
            "left": first.left_text,
            "right_rank": first.right_rank,
            "right_place": first.right_index + 1,
            "right_items": first.right_items,
            "right": first.right_text,
            "compile_id": first.compile_id,
        },
        page=first.page,
        rank=first.right_rank,
        log=first.right,
    )


def severity(row: AspectRow, first: FirstDifference) -> Severity:
    if row.state == "stages":
        return "info"
    return "critical" if row.aspect == "collectives" and first.kind in _HANGS else "warning"


def title(row: AspectRow, first: FirstDifference) -> str:
    groups = "; ".join(group.name for group in row.groups)
    if row.state == "stages":
        return f"Ranks compile different programs, as stages of a pipeline do ({groups}): {WHAT[row.aspect]} differ"
    return f"Ranks differ in {WHAT[row.aspect]} ({groups}): {first.text}"
