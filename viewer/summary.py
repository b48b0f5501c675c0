"""The answer for CI and agents: `stepscope summary --json`, format ``stepscope-summary/1``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from stepscope.viewer.queries.compiles import list_compiles
from stepscope.viewer.queries.damage import inside_kernels, problems
from stepscope.viewer.queries.memory_summary import NodePeak, estimated_peaks, measured_peaks, memory_figures
from stepscope.viewer.queries.overview import overview
from stepscope.viewer.queries.rows import CompileRow, Finding, GraphRow, RunRow, StepRow
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
    facts, snodes = overview(trace), snode_counts(trace)
    estimated, measured = estimated_peaks(trace), measured_peaks(trace)
    cost, logs = facts.overhead, {run.log: PurePath(run.path).name for run in facts.runs}
    return {
        "format": FORMAT,
        "runs": [_run(run) for run in facts.runs],
        "counts": asdict(facts.counts),
        "ingest": {
            "skipped": facts.skipped,
            "problems": [asdict(problem) for problem in problems(trace)],
            "not_recorded": [asdict(row) for row in (*facts.not_recorded, *inside_kernels(trace))],
        },
        "findings": [
            _finding(finding) | {"log": logs.get(finding.log) if finding.log is not None else None}
            for finding in facts.findings
        ],
        "steps": _steps(facts.steps, logs),
        "crash_runs": [asdict(run) for run in facts.crash_runs],
        "graphs": [
            _graph(graph, snodes.get(graph.graph))
            | _peak("estimated", estimated.get(graph.graph))
            | _peak("measured", measured.get(graph.graph))
            | {"log": logs.get(graph.log)}
            for graph in facts.graphs
        ],
        "memory": asdict(memory_figures(trace)),
        "compiles": [_compile(row) | {"log": logs.get(row.log)} for row in list_compiles(trace)],
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
    facts = overview(trace)
    memory = MemoryText(memory_figures(trace), estimated_peaks(trace), measured_peaks(trace))
    return render(facts, list_compiles(trace), problems(trace), memory)


def _run(run: RunRow) -> dict[str, Any]:
    keys = ("rank", "world_size", "pid", "torch", "python", "devices", "argv", "level", "format_version", "complete")
    return {key: getattr(run, key) for key in keys} | {"log": PurePath(run.path).name, "crash_run": run.crash_run}


def _steps(steps: list[StepRow], logs: dict[int, str]) -> dict[str, Any]:
    keys = ("step", "kind", "by", "optimizers", "duration_ns", "compile_ns", "launches", "calls")
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
