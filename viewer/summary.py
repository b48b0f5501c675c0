"""The answer for CI and agents: `stepscope summary --json`, format ``stepscope-summary/1``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import PurePath
from typing import Any

from stepscope.viewer.findings import gaps
from stepscope.viewer.parts import failures, part
from stepscope.viewer.queries.compiles import list_compiles
from stepscope.viewer.queries.damage import inside_kernels, problems
from stepscope.viewer.queries.memory_summary import (
    MemoryFigures,
    NodePeak,
    estimated_peaks,
    measured_peaks,
    memory_figures,
)
from stepscope.viewer.queries.overview import overview
from stepscope.viewer.queries.rows import CompileRow, Finding, GraphRow, NotRecorded, RunRow, StepRow
from stepscope.viewer.queries.snodes import snode_counts
from stepscope.viewer.queries.step_sources import step_sources
from stepscope.viewer.store.open import Trace
from stepscope.viewer.summary_text import MemoryText, render

FORMAT = "stepscope-summary/1"
MOST_STEPS = 2000
"""`steps.rows` holds so many, `counts.steps` tells how many there are."""
_FINDING_KEYS = (
    "kind", "severity", "title", "rank", "step", "graph", "launch", "kernel", "buffer", "argument", "source",
    "evidence", "page", "rule",
)  # fmt: skip


def summary(trace: Trace) -> dict[str, Any]:
    """The whole answer. Sizes in bytes, times in ns, unknown is None; keys are added over time, never renamed."""
    with failures() as failed:
        answer = _summary(trace)
    gone = [NotRecorded("a part of this answer", why, None, None, 1) for why in failed]
    answer["ingest"]["not_recorded"] += map(asdict, gone)
    return answer


def _summary(trace: Trace) -> dict[str, Any]:
    facts, snodes = overview(trace), part("Scheduler nodes", {}, snode_counts, trace)
    peaks, inside = _peaks(trace), part("Values inside kernels", [], inside_kernels, trace)
    cost, logs = facts.overhead, {run.log: PurePath(run.path).name for run in facts.runs}
    return {
        "format": FORMAT,
        "runs": [_run(run) for run in facts.runs],
        "counts": asdict(facts.counts),
        "ingest": {
            "skipped": facts.skipped,
            "problems": [asdict(problem) for problem in part("Problems", [], problems, trace)],
            "not_recorded": [asdict(row) for row in (*facts.not_recorded, *inside, *gaps(trace))],
        },
        "findings": [
            _finding(finding) | {"log": logs.get(finding.log) if finding.log is not None else None}
            for finding in facts.findings
        ],
        "steps": _steps(facts.steps, logs),
        "crash_runs": [asdict(run) for run in facts.crash_runs],
        "graphs": [
            _graph(graph, snodes.get(graph.graph))
            | _peak("estimated", peaks[0].get(graph.graph))
            | _peak("measured", peaks[1].get(graph.graph))
            | {"log": logs.get(graph.log)}
            for graph in facts.graphs
        ],
        "memory": asdict(_figures(trace)),
        "compiles": [_compile(row) | {"log": logs.get(row.log)} for row in part("Compiles", [], list_compiles, trace)],
        "overhead": {
            "hook_ns": cost.hook_ns,
            "stats_ns": cost.stats_ns,
            "log_bytes": cost.log_bytes,
            "bytes_per_launch": cost.bytes_per_launch,
            "failures": cost.failures,
        },
    }


def summary_text(trace: Trace) -> str:
    """The same for a terminal: at most 100 columns, the verdict first."""
    with failures() as failed:
        facts, memory = overview(trace), MemoryText(_figures(trace), *_peaks(trace))
        compiles, wrong = part("Compiles", [], list_compiles, trace), part("Problems", [], problems, trace)
    return render(replace(facts, notes=[*failed, *facts.notes]), compiles, wrong, memory)


def _peaks(trace: Trace) -> tuple[dict[int, NodePeak], dict[int, NodePeak]]:
    """Estimated and measured ones, by graph."""
    return part("Estimated peaks", {}, estimated_peaks, trace), part("Measured peaks", {}, measured_peaks, trace)


def _figures(trace: Trace) -> MemoryFigures:
    return part("Memory", MemoryFigures(None, None, None, None), memory_figures, trace)


def _run(run: RunRow) -> dict[str, Any]:
    keys = ("rank", "world_size", "pid", "torch", "python", "devices", "argv", "level", "format_version", "complete")
    more = {"log": PurePath(run.path).name, "crash_run": run.crash_run, "writer": run.writer}
    return {key: getattr(run, key) for key in keys} | more


def _steps(steps: list[StepRow], logs: dict[int, str]) -> dict[str, Any]:
    keys = ("step", "kind", "by", "optimizers", "duration_ns", "compile_ns", "launches", "subgraph_calls", "calls")
    rows = [{key: getattr(step, key) for key in keys} | {"log": logs.get(step.log)} for step in steps[:MOST_STEPS]]
    return asdict(step_sources(steps)) | {"rows": rows}


def _finding(finding: Finding) -> dict[str, Any]:
    row = asdict(finding)
    return {key: row[key] for key in _FINDING_KEYS}


def _graph(graph: GraphRow, snodes: int | None) -> dict[str, Any]:
    return {
        "graph": graph.graph,
        "compile_id": graph.compile_id,
        "aot_id": graph.aot_id,
        "snodes": snodes,
        "launch_sites": graph.launch_sites,
        "launches": graph.launches,
        "subgraph_calls": graph.subgraph_calls,
        "duration_ns": graph.duration_ns,
    }


def _peak(series: str, peak: NodePeak | None) -> dict[str, Any]:
    return {
        f"{series}_peak_bytes": peak.peak_bytes if peak else None,
        f"{series}_peak_snode": peak.snode if peak else None,
        f"{series}_peak_index": peak.snode_index if peak else None,
    }


def _compile(row: CompileRow) -> dict[str, Any]:
    keys = (
        "compile_id", "frame", "status", "attempts", "duration_ns", "cache", "recompile_reason", "graph_break_reason",
    )  # fmt: skip
    return {key: getattr(row, key) for key in keys}
