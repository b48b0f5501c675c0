"""Queries the overview: the findings and the facts of the run."""

from __future__ import annotations

from dataclasses import replace

from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.graphs import list_graphs
from stepscope.viewer.graphs.queries.hidden_aliases import custom_operators
from stepscope.viewer.graphs.queries.subgraph_calls import SubgraphCalls, subgraph_calls
from stepscope.viewer.ingest.torch_trace.kinds import UNKNOWN_PREFIX
from stepscope.viewer.judged.queries.judged import judged_count
from stepscope.viewer.judged.rows import JudgedCount
from stepscope.viewer.memory.queries.graphs import lifetime_events
from stepscope.viewer.overview.queries.damage import SEEN_AT_BUFFERS, not_recorded_lines, problem_counts
from stepscope.viewer.overview.queries.hints import eager_hint, is_compared, red_zone_hint
from stepscope.viewer.overview.queries.package_hints import has_only_printed, no_graphs_hint, package_hint
from stepscope.viewer.overview.queries.runs import list_runs, list_steps
from stepscope.viewer.overview.rows import Counts, CrashRunRow, Finding, OverheadRow, Overview, RunRow
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.changed_values import reads_again
from stepscope.viewer.web.parts import failures, part

MOST_GRAPHS = 20
"""Maximum number of graphs on the first page."""
MOST_REASONS = 3
"""Maximum number of reasons for which launches were not judged."""
_LEVELS_WITH_VALUES = ("values", "save")
_BREAKS = ("graph_break", "break_in_hot_loop", "synchronizing_call")
_NEED_VALUES = "NaN, growing magnitudes, reads of unwritten memory and changed saved tensors"
_OF_RANKS = ", and for parameters and buffers that should be equal on all ranks and are not"
_NO_PRINTED_VALUES = "Values were not recorded; record with --aoti values to look for NaN and growing magnitudes."
_NOT_JUDGED = "To look for finite but wrong numbers, record with --judge first --check-eager."


def overview(trace: Trace) -> Overview:
    """Return the findings and the facts of the run, with all of its graphs."""
    return replace(with_time(trace, first_page(trace)), graphs=part("Graphs", [], list_graphs, trace))


def with_time(trace: Trace, found: Overview) -> Overview:
    """Add where the time of the steps goes, for which all steps are divided. The frame of a page does not need it."""
    with failures() as failed:
        time = part("Where the time goes", [], run_splits, trace)
    return replace(found, time=time, notes=[*failed, *found.notes])


def first_page(trace: Trace) -> Overview:
    """Return the overview for the first page, with at most `MOST_GRAPHS` graphs and without `time`."""
    found = trace.once(_first_page)
    return replace(found, notes=[*trace.notices, *found.notes])


def _first_page(trace: Trace) -> Overview:
    with failures() as failed:
        found = _parts(trace)
    return replace(found, notes=[*failed, *found.notes])


def _parts(trace: Trace) -> Overview:
    runs, skipped, meta = list_runs(trace), problem_counts(trace), _meta(trace)
    caches = part("Compiles", [], _caches, trace)
    durations = [duration_ns for _, _, duration_ns in caches if duration_ns is not None]
    findings, steps = all_findings(trace), part("Steps", [], list_steps, trace)
    counts = _counts(
        meta,
        runs,
        part("Lifetimes", None, lifetime_events, trace),
        sum(step.kind == "data" for step in steps),
        part("Calls of subgraphs", SubgraphCalls(), subgraph_calls, trace).total,
    )
    judged = part("The verdicts of the judge", None, judged_count, trace)
    counts = replace(counts, judged_launches=judged.judged if judged is not None else None)
    return Overview(
        runs=runs,
        counts=counts,
        findings=findings,
        steps=steps,
        graphs=part("Graphs", [], list_graphs, trace, MOST_GRAPHS),
        compile_count=sum(count for _, count, _ in caches),
        compile_duration_ns=sum(durations) if durations else None,
        cache_counts={cache: count for cache, count, _ in caches if cache is not None},
        graph_breaks=sum(finding.evidence["breaks"] for finding in findings if finding.kind in _BREAKS),
        problems=sum(skipped.values()),
        skipped=skipped,
        not_recorded=part("What was not recorded", [], not_recorded_lines, trace),
        overhead=part("The cost of the recorder", OverheadRow(*(None,) * 6), overhead, trace),
        index_bytes=trace.index_bytes,
        notes=[
            *_judged(judged),
            *_notes(trace, meta, runs, counts),
            *_no_graphs(trace, runs, counts, findings),
            *_undeclared(trace),
            *red_zone_hint(trace),
            *package_hint(trace),
            *eager_hint(trace),
        ],
        crash_runs=part("Runs after the crash", [], _crash_runs, trace, runs),
    )


def _caches(trace: Trace) -> list[sql.Row]:
    return sql.rows(trace, "SELECT cache, count(*), sum(duration_ns) FROM compiles GROUP BY cache ORDER BY cache")


def _crash_runs(trace: Trace, runs: list[RunRow]) -> list[CrashRunRow]:
    if all(run.crash_run is None for run in runs):
        return []
    from stepscope.viewer.findings.crash.crash_runs import crash_runs  # takes time to import

    return crash_runs(trace)


def _meta(trace: Trace) -> dict[str, str]:
    return dict(sql.rows(trace, "SELECT key, value FROM meta"))


def _counts(meta: dict[str, str], runs: list[RunRow], lifetimes: int | None, no_steps: int, calls: int) -> Counts:
    """Count the contents of the trace; counts that only a recorder knows are None for logs written by PyTorch alone.

    `no_steps` is the number of step rows for calls by DataLoader workers, `calls` the number of launch rows for calls
    of subgraphs."""
    recorded = any(run.writer == "stepscope" and not run.is_left_out for run in runs)
    with_values = any(run.level in _LEVELS_WITH_VALUES for run in runs)
    logs, records, compiles, graphs, sites, launches, steps, values = (
        int(meta.get(f"count:{table}", 0))
        for table in ("logs", "records", "compiles", "graphs", "sites", "launches", "steps", "value_rows")
    )
    return Counts(
        logs=logs,
        records=records,
        compiles=compiles,
        graphs=graphs,
        launch_sites=sites if recorded else None,
        launches=launches - calls if recorded else None,
        value_rows=values if values or with_values else None,
        steps=steps - no_steps if recorded else None,
        lifetime_events=lifetimes,
        subgraph_calls=calls,
    )


def overhead(trace: Trace) -> OverheadRow:
    """Return the recorder's own cost over all logs, with None for what was not measured.

    Bytes per launch cover only the batches of launches. Hooks that never ran count as not measured, because a debug
    printer recorded the launches instead."""
    found = sql.row(
        trace,
        "SELECT sum(nullif(hook_ns, 0)), sum(stats_ns), sum(wall_ns), sum(log_bytes), sum(failures) FROM overhead",
    )
    hook_ns, stats_ns, wall_ns, log_bytes, failures = found or (None,) * 5
    launches = int(_meta(trace).get("count:launches", 0))
    batches = (
        sql.number(trace, "SELECT sum(header_bytes + payload_bytes) FROM records WHERE name = 'stepscope_launches'")
        if launches
        else None
    )
    per_launch = batches / launches if batches else None
    return OverheadRow(hook_ns, stats_ns, wall_ns, log_bytes, per_launch, failures)


def _judged(judged: JudgedCount | None) -> list[str]:
    """Return what the judge did in one sentence: ``The judge recomputed 52 of 55 launches of 1 step.``"""
    if judged is None:
        return []
    of = f"{plural(judged.launches, 'launch')} of {plural(judged.steps, 'step')}"
    done = f"The judge recomputed {judged.judged:,} of {of}"
    reasons = "; ".join(f"{why} ({plural(count, 'launch')})" for why, count in [*judged.reasons.items()][:MOST_REASONS])
    more = len(judged.reasons) - MOST_REASONS
    rest = f"; and {more:,} more reasons" if more > 0 else ""
    return [f"{done}. Not judged: {reasons}{rest}." if reasons else f"{done}."]


def _undeclared(trace: Trace) -> list[str]:
    """Return how to look for inputs that custom operators change without declaring it, if that was not done."""
    operators = custom_operators(trace)
    if not operators or reads_again(trace):
        return []
    return [
        f"It was not checked whether custom operators ({', '.join(operators[:MOST_REASONS])}"
        f"{', …' if len(operators) > MOST_REASONS else ''}) change inputs without declaring it; record with"
        " --level values --verify-before to find out."
    ]


def _no_values(runs: list[RunRow]) -> str:
    ranks = _OF_RANKS if len({run.rank for run in runs if run.rank is not None}) > 1 else ""
    return f"Values were not recorded; record with --level values to look for {_NEED_VALUES}{ranks}."


def _no_graphs(trace: Trace, runs: list[RunRow], counts: Counts, findings: list[Finding]) -> list[str]:
    """Return how to record what runs no compiled graph, unless there is none because its compile failed."""
    is_known = any(finding.kind == "compile_failure" for finding in findings)
    is_whole = any(run.writer == "stepscope" and run.complete for run in runs)
    return no_graphs_hint(trace) if counts.graphs == 0 and is_whole and not is_known else []


def _notes(trace: Trace, meta: dict[str, str], runs: list[RunRow], counts: Counts) -> list[str]:
    notes = [SEEN_AT_BUFFERS] if counts.value_rows else []
    if counts.launches and counts.value_rows is None and has_only_printed(trace):
        notes.append(_NO_PRINTED_VALUES)
    elif counts.launches and counts.value_rows is None:
        notes.append(_no_values(runs))
        if counts.judged_launches is None and not is_compared(trace):
            notes.append(_NOT_JUDGED)
    plain = [run for run in runs if run.writer == "torch"]
    if plain and len(plain) == len(runs):
        notes.append("PyTorch wrote this trace without stepscope, so it contains compiles but no steps or launches.")
    elif plain:
        notes.append(
            f"PyTorch wrote {len(plain)} of {len(runs)} logs without stepscope, so these contain no steps or launches."
        )
    unknown = {key.partition(":")[2]: int(value) for key, value in meta.items() if key.startswith(UNKNOWN_PREFIX)}
    notes += [
        f"{count:,} record{'s' if count > 1 else ''} of a kind that this stepscope does not know: {name}."
        for name, count in sorted(unknown.items(), key=lambda item: -item[1])
    ]
    return notes
