"""Memory grows from step to step: the same buffer of the same graph was left behind by each of the last three or more
steps in which the graph ran, and was alive when the recording ended, or when the log of a killed process broke off (who
holds it is not known then). No growth: what only earlier steps left (caches that settle, warm-up, optimizer state), and
a window of the last few, where earlier ones had been freed after as many steps. One finding per graph and buffer;
buffers that the same holders keep and one line of the model made share one."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    buffers_table,
    grouped,
    names_text,
    one_leak,
    rule_of,
)
from stepscope.viewer.formats import format_bytes
from stepscope.viewer.queries.memory_mismatches import growth
from stepscope.viewer.queries.memory_places import label_of
from stepscope.viewer.queries.rows import Finding
from stepscope.viewer.queries.rows_of_memory import GrowthRow
from stepscope.viewer.store.open import Trace

_LAST = 2**62
_COLLECTED = {
    True: "; a garbage collection frees it: a cycle of references holds it",
    False: "; a garbage collection does not free it",
    None: "",
}


def find(evidence: Evidence) -> list[Timed]:
    """One finding per leak, most bytes per step first."""
    ranks = {run.log: run.rank for run in evidence.runs}
    leaks = grouped(growth(evidence.trace) or (), _leak)
    leaks.sort(key=lambda rows: -sum(row.bytes_per_step for row in rows))
    return [(_LAST + i, _finding(evidence.trace, rows, ranks.get(rows[0].log))) for i, rows in enumerate(leaks)]


def _leak(row: GrowthRow) -> object:
    of = row.graph, row.function
    return one_leak(of, (*row.steps, row.freed_by_collection), row.holders, row.source, (row.buffer, row.kind))


def _finding(trace: Trace, rows: Sequence[GrowthRow], rank: int | None) -> Finding:
    row = rows[0]
    held = f"; held by {row.holders[0]}" if row.holders else ""
    verb = "are" if len(rows) > 1 else "is"
    grows = sum(row.bytes_per_step for row in rows)
    return Finding(
        kind="growth",
        severity="warning",
        title=(
            f"Memory grows by {format_bytes(grows)} per step: {names_text([row.buffer for row in rows])} of "
            f"{label_of(trace, row.graph)} {verb} still alive from each of the last {len(row.steps)} steps{held}"
            f"{_COLLECTED[row.freed_by_collection]}"
        ),
        rule=rule_of(__doc__),
        evidence={
            "bytes_per_step": grows,
            "storage_bytes": sum(row.storage_bytes for row in rows),
            "storages": sum(row.storages for row in rows),
            "steps": len(row.steps),
            "first_step": row.steps[0],
            "last_step": row.steps[-1],
            "holders": row.holders[:MOST_EXAMPLES],
            "freed_by_collection": row.freed_by_collection,
            "buffers": buffers_table(rows, "buffer", "storages", "storage_bytes", "bytes_per_step"),
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
