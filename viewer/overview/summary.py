"""Builds the answer of `stepscope summary`, as JSON in the format ``stepscope-summary/1`` or as text."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import PurePath
from typing import Any, TypeVar

from stepscope.viewer.compiles.queries.compiles import list_compiles
from stepscope.viewer.findings import gaps
from stepscope.viewer.graphs.queries.snodes import snode_counts
from stepscope.viewer.memory.queries.summary import (
    MemoryFigures,
    NodePeak,
    estimated_peaks,
    measured_peaks,
    memory_figures,
)
from stepscope.viewer.overview.queries.damage import inside_kernels, problems
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.rows import NotRecorded, Overview, StepRow
from stepscope.viewer.overview.summary_answer import (
    FORMAT,
    FindingsAnswer,
    Summary,
    SummaryCompile,
    SummaryFinding,
    SummaryGraph,
    SummaryIngest,
    SummaryOverhead,
    SummaryRun,
    SummaryStep,
    SummarySteps,
)
from stepscope.viewer.overview.summary_text import MemoryText, render, render_findings
from stepscope.viewer.steps.queries.step_sources import step_sources
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Request, Twin
from stepscope.viewer.web.parts import failures, part

MOST_STEPS = 2000
"""Maximum length of `steps.rows`; `counts.steps` is the number of all steps."""
T = TypeVar("T")


def summary(trace: Trace) -> dict[str, Any]:
    """Return the answer as JSON."""
    with failures() as failed:
        answer = asdict(_summary(trace))
    return _with_gaps(answer, failed)


def _with_gaps(answer: dict[str, Any], failed: list[str]) -> dict[str, Any]:
    """Return the answer with the parts that failed among what was not recorded."""
    gone = [NotRecorded("a part of this answer", why, None, None, 1) for why in failed]
    answer["ingest"]["not_recorded"] += map(asdict, gone)
    return answer


def _summary(trace: Trace) -> Summary:
    facts, snodes = overview(trace), part("Scheduler nodes", {}, snode_counts, trace)
    peaks = _peaks(trace)
    cost, logs = facts.overhead, _log_names(facts)
    return Summary(
        format=FORMAT,
        runs=[_as(SummaryRun, run, log=PurePath(run.path).name) for run in facts.runs],
        counts=facts.counts,
        ingest=_ingest(trace, facts),
        findings=_findings(facts),
        steps=_steps(facts.steps, logs),
        time=facts.time,
        crash_runs=facts.crash_runs,
        graphs=[
            _as(
                SummaryGraph, graph, snodes=snodes.get(graph.graph), log=logs.get(graph.log),
                **_peak("estimated", peaks[0].get(graph.graph)), **_peak("measured", peaks[1].get(graph.graph)),
            )
            for graph in facts.graphs
        ],
        memory=_figures(trace),
        compiles=[
            _as(SummaryCompile, row, log=logs.get(row.log)) for row in part("Compiles", [], list_compiles, trace)
        ],
        overhead=_as(SummaryOverhead, cost),
    )  # fmt: skip


def findings(trace: Trace) -> dict[str, Any]:
    """Return the answer of `stepscope findings` as JSON."""
    with failures() as failed:
        facts = overview(trace)
        answer = asdict(FindingsAnswer("stepscope-findings/1", facts.counts, _findings(facts), _ingest(trace, facts)))
    return _with_gaps(answer, failed)


def findings_text(trace: Trace) -> str:
    """Return the findings as text of at most 100 columns."""
    return render_findings(overview(trace))


def summary_text(trace: Trace) -> str:
    """Return the summary as text of at most 100 columns, findings first."""
    with failures() as failed:
        facts, memory = overview(trace), MemoryText(_figures(trace), *_peaks(trace))
        compiles, wrong = part("Compiles", [], list_compiles, trace), part("Problems", [], problems, trace)
    return render(replace(facts, notes=[*failed, *facts.notes]), compiles, wrong, memory)


def _findings(facts: Overview) -> list[SummaryFinding]:
    logs = _log_names(facts)
    return [_as(SummaryFinding, row, log=_log(logs, row.log)) for row in facts.findings]


def _ingest(trace: Trace, facts: Overview) -> SummaryIngest:
    inside = part("Values inside kernels", [], inside_kernels, trace)
    found = part("Problems", [], problems, trace)
    return SummaryIngest(facts.skipped, found, [*facts.not_recorded, *inside, *gaps(trace)])


def _log_names(facts: Overview) -> dict[int, str]:
    return {run.log: PurePath(run.path).name for run in facts.runs}


def _peaks(trace: Trace) -> tuple[dict[int, NodePeak], dict[int, NodePeak]]:
    """Return the estimated and the measured peaks, by graph."""
    return part("Estimated peaks", {}, estimated_peaks, trace), part("Measured peaks", {}, measured_peaks, trace)


def _figures(trace: Trace) -> MemoryFigures:
    return part("Memory", MemoryFigures(None, None, None, None), memory_figures, trace)


def _log(logs: dict[int, str], log: int | None) -> str | None:
    return logs.get(log) if log is not None else None


def _steps(steps: list[StepRow], logs: dict[int, str]) -> SummarySteps:
    rows = [_as(SummaryStep, step, log=logs.get(step.log)) for step in steps[:MOST_STEPS]]
    return _as(SummarySteps, step_sources(steps), rows=rows)


def _as(cls: type[T], row: object, **others: Any) -> T:
    """Create a `cls` from the attributes of `row` with the same names, and from `others`."""
    names = [field.name for field in fields(cls) if field.name not in others]  # type: ignore[arg-type]
    return cls(**{name: getattr(row, name) for name in names}, **others)


def _peak(series: str, peak: NodePeak | None) -> dict[str, Any]:
    return {
        f"{series}_peak_bytes": peak.peak_bytes if peak else None,
        f"{series}_peak_snode": peak.snode if peak else None,
        f"{series}_peak_index": peak.snode_index if peak else None,
    }


def summary_answer(trace: Trace, request: Request) -> dict[str, Any]:
    return summary(trace)


ROUTES = (Twin("/summary.json", Summary, summary_answer),)
