"""The overview: the verdict and the facts of the run."""

from __future__ import annotations

from viewer.findings import all_findings
from viewer.queries import sql
from viewer.queries.damage import not_recorded, problem_counts
from viewer.queries.graphs import list_graphs
from viewer.queries.rows import Counts, OverheadRow, Overview, RunRow
from viewer.queries.runs import list_runs
from viewer.queries.steps import list_steps
from viewer.store.open import Trace

_COUNTS = """
    SELECT (SELECT count(*) FROM logs), (SELECT count(*) FROM records), (SELECT count(*) FROM compiles),
           (SELECT count(*) FROM graphs), (SELECT count(*) FROM sites), (SELECT count(*) FROM launches),
           (SELECT count(*) FROM steps)
"""


def overview(trace: Trace) -> Overview:
    """Everything that the first page shows."""
    runs, skipped = list_runs(trace), problem_counts(trace)
    duration_ns = sql.number(trace, "SELECT sum(duration_ns) FROM compiles")
    compiles = sql.number(trace, "SELECT count(*) FROM compiles")
    return Overview(
        runs=runs,
        counts=counts(trace, runs),
        findings=all_findings(trace),
        steps=list_steps(trace),
        graphs=list_graphs(trace),
        compile_count=compiles,
        compile_duration_ns=None if duration_ns is None else int(duration_ns),
        cache_counts=_cache_counts(trace),
        graph_breaks=sql.number(trace, "SELECT count(*) FROM compile_events WHERE kind = 'graph_break'"),
        problems=sum(skipped.values()),
        skipped=skipped,
        not_recorded=not_recorded(trace),
        overhead=overhead(trace),
        index_bytes=trace.index_bytes,
        notes=_notes(trace, runs),
    )


def counts(trace: Trace, runs: list[RunRow]) -> Counts:
    """How much there is; what only a recorder can know is None for a trace of logs that PyTorch alone wrote."""
    found = sql.row(trace, _COUNTS)
    assert found is not None
    logs, records, compiles, graphs, sites, launches, steps = found
    recorded = any(run.level is not None for run in runs)
    return Counts(
        logs=logs,
        records=records,
        compiles=compiles,
        graphs=graphs,
        launch_sites=sites if recorded else None,
        launches=launches if recorded else None,
        value_rows=None,
        steps=steps if recorded else None,
        lifetime_events=None,
    )


def overhead(trace: Trace) -> OverheadRow:
    """The recorder's own cost over all logs."""
    found = sql.row(
        trace, "SELECT sum(hook_ns), sum(wall_ns), sum(log_bytes), sum(launches), sum(failures) FROM overhead"
    )
    hook_ns, wall_ns, log_bytes, launches, failures = (None if n is None else int(n) for n in found or [None] * 5)
    per_launch = _bytes_per_launch(trace)
    return OverheadRow(hook_ns, None, wall_ns, log_bytes, per_launch if launches else None, failures)


def _bytes_per_launch(trace: Trace) -> float | None:
    """What a launch takes in the log: the batches of launches, divided by how many there are in them."""
    found = sql.row(
        trace,
        "SELECT (SELECT sum(header_bytes + payload_bytes) FROM records WHERE name = 'stepscope_launches'),"
        " (SELECT count(*) FROM launches)",
    )
    return float(found[0]) / found[1] if found and found[0] and found[1] else None


def _cache_counts(trace: Trace) -> dict[str, int]:
    found = sql.rows(trace, "SELECT cache, count(*) FROM compiles WHERE cache IS NOT NULL GROUP BY 1 ORDER BY 1")
    return dict(found)


def _notes(trace: Trace, runs: list[RunRow]) -> list[str]:
    notes = []
    plain = [run for run in runs if run.level is None]
    if plain and len(plain) == len(runs):
        notes.append("PyTorch alone wrote this trace: it shows compiles, and has no steps or launches.")
    elif plain:
        notes.append(f"PyTorch alone wrote {len(plain)} of {len(runs)} logs: those have no steps or launches.")
    notes += [
        f"{int(count):,} records of a kind that this stepscope does not know: {key.partition(':')[2]}."
        for key, count in sql.rows(
            trace, "SELECT key, value FROM meta WHERE starts_with(key, 'unknown_event:') ORDER BY value::BIGINT DESC"
        )
    ]
    return notes
