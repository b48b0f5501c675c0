"""Ranks of one run differ: they compile different frames or graphs, get different cache results, launch different
collectives or make tensors of different shapes; or one rank needs at least twice as long for a compile as the median
rank, and at least a second longer. Collectives in another order, with other sizes or in other process groups are
critical, because the ranks then wait for each other forever. Names of process groups may differ if they correspond one
to one. The finding is information where runs of equal width compile different programs from the first graph on, as the
stages of a pipeline do, and none of them share parameters by DistributedDataParallel, or where ranks that train differ
only in compiles of inference graphs, as for an evaluation on one rank, and the collectives of their shared groups
agree. It is also information for results of caches, which depend on the rank that compiles first. Data that one rank
did not log is not a difference, nor are cache results of the compile in which the compiles themselves first differ. The
last log of each rank is compared, and there is one finding per aspect."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.overview.rows import Finding, Severity
from stepscope.viewer.ranks.queries.difference import Operation, first_operations, rank_difference
from stepscope.viewer.ranks.queries.ranks import AspectRow, FirstDifference, ranks

SUMMARY = "Ranks differ"

WHAT = {
    "collectives": "collectives",
    "compile_ids": "compiles",
    "graphs": "graphs",
    "tensors": "tensor shapes",
    "caches": "cache decisions",
    "times": "compile times",
}
_HANGS = ("order", "size", "group")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per aspect in which ranks differ."""
    if len(evidence.runs) < 2:
        return []
    starts = {run.log: run.start_unix_ns or 0 for run in evidence.runs}
    differ = [(row, row.first) for row in ranks(evidence.trace).aspects if row.first is not None]
    compiles = {_place(row, first) for row, first in differ if row.aspect == "compile_ids"}
    return [
        (starts[first.right], _finding(evidence, row, first))
        for row, first in differ
        if row.aspect != "caches" or _place(row, first) not in compiles
    ]


def _place(row: AspectRow, first: FirstDifference) -> object:
    """Return the compile and the groups of ranks that first differ; two aspects that share them have one cause."""
    return first.compile_id, tuple(group.name for group in row.groups)


def _finding(evidence: Evidence, row: AspectRow, first: FirstDifference) -> Finding:
    left, right = _operations(evidence, row, first)
    shown = right or left
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
        proof=_proof((left, first.left_rank), (right, first.right_rank)),
        page=first.page,
        rank=first.right_rank,
        log=first.right,
        source=shown.source if shown else None,
    )


def _operations(
    evidence: Evidence, row: AspectRow, first: FirstDifference
) -> tuple[Operation | None, Operation | None]:
    """Return the first operations in which ranks differ that should compile the same, if their graphs show them."""
    if row.aspect != "graphs" or row.state == "stages":
        return None, None
    diff = rank_difference(evidence.trace, row.aspect, first.left, first.right).graph
    return first_operations(evidence.trace, diff) if diff else (None, None)


def _proof(*sides: tuple[Operation | None, int | None]) -> list[str]:
    said = [f"{one.text} on rank {rank}" for one, rank in sides if one is not None]
    without = [f", which rank {rank} does not have there" for one, rank in sides if one is None]
    return [f"The first operation that differs is {' and '.join(said)}{''.join(without)}."] if said else []


def severity(row: AspectRow, first: FirstDifference) -> Severity:
    if row.state == "stages" or row.only_evaluates or row.aspect == "caches":
        return "info"
    return "critical" if row.aspect == "collectives" and first.kind in _HANGS else "warning"


def title(row: AspectRow, first: FirstDifference) -> str:
    names = [" and ".join(group.name.rsplit(", ", 1)) for group in row.groups]
    if row.state == "stages":
        groups = "; ".join(names)
        programs = "Ranks compile different programs, as the stages of a pipeline do"
        return f"{programs} ({groups}): their {WHAT[row.aspect]} differ"
    begins = f": {first.text}" if row.aspect == "times" else f", first in {first.text}"
    *others, last = [f"those of {name}" for name in names[1:]]
    if others:
        return f"The {WHAT[row.aspect]} of {names[0]}, {', '.join(others)} and {last} differ{begins}"
    return f"The {WHAT[row.aspect]} of {names[0]} differ from {last}{begins}"
