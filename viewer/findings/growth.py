"""Memory grows from step to step: the same buffer of the same graph was left behind by each of the last three or more
steps in which the graph ran, and was alive when the recording ended. No growth: what only earlier steps left (caches
that settle, warm-up, optimizer state), and a window of the last few, where earlier ones had been freed after as many
steps. One finding per graph and buffer."""

from __future__ import annotations

from viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, rule_of
from viewer.formats import format_bytes
from viewer.queries.memory_mismatches import growth
from viewer.queries.memory_places import label_of
from viewer.queries.rows import Finding
from viewer.queries.rows_of_memory import GrowthRow
from viewer.store.open import Trace

_LAST = 2**62
_COLLECTED = {
    True: "; a garbage collection frees it: a cycle of references holds it",
    False: "; a garbage collection does not free it",
    None: "",
}


def find(evidence: Evidence) -> list[Timed]:
    """One finding per graph and buffer, most bytes per step first."""
    ranks = {run.log: run.rank for run in evidence.runs}
    return [
        (_LAST + i, _finding(evidence.trace, row, ranks.get(row.log)))
        for i, row in enumerate(growth(evidence.trace) or ())
    ]


def _finding(trace: Trace, row: GrowthRow, rank: int | None) -> Finding:
    held = f"; held by {row.holders[0]}" if row.holders else ""
    return Finding(
        kind="growth",
        severity="warning",
        title=(
            f"Memory grows by {format_bytes(row.bytes_per_step)} per step: {row.buffer} of "
            f"{label_of(trace, row.graph)} is still alive from each of the last {len(row.steps)} steps{held}"
            f"{_COLLECTED[row.freed_by_collection]}"
        ),
        rule=rule_of(__doc__),
        evidence={
            "bytes_per_step": row.bytes_per_step,
            "storage_bytes": row.storage_bytes,
            "storages": row.storages,
            "steps": len(row.steps),
            "first_step": row.steps[0],
            "last_step": row.steps[-1],
            "holders": row.holders[:MOST_EXAMPLES],
            "freed_by_collection": row.freed_by_collection,
        },
        page=f"/graphs/{row.graph}/memory",
        rank=rank,
        step=row.steps[-1],
        graph=row.graph,
        launch=row.launch,
        kernel=row.kernel,
        buffer=row.buffer,
        source=row.source,
        log=row.log,
    )
