"""The answers of `stepscope summary --json` (also /summary.json) and `stepscope findings --json`, from which
docs/summary.schema.json and docs/findings.schema.json are generated.

Sizes are in bytes, times in ns, and unknown values are null. Fields are added over time but never renamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.summary import MemoryFigures
from stepscope.viewer.overview.rows import Counts, CrashRunRow, NotRecorded, Problem, ProofLink, Severity
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.steps.queries.step_sources import StepSources

FORMAT: Literal["stepscope-summary/1"] = "stepscope-summary/1"


@dataclass(frozen=True)
class SummaryRun:
    """The run that one log recorded."""

    rank: int | None
    world_size: int | None
    pid: int | None
    torch: str | None
    python: str | None
    devices: list[str]
    argv: list[str]
    level: str | None
    """Recording level; null if PyTorch alone wrote the log, or its run record is damaged or missing."""
    format_version: int | None
    complete: bool | None
    """Whether the log has an end record; null if unknown."""
    log: str
    """File name of the log."""
    crash_run: int | None
    """Number of the run of `stepscope run --crash`, counted from 1."""
    writer: Literal["stepscope", "torch"] | None
    """Program that wrote the log; null if the log has no records."""


@dataclass(frozen=True)
class SummaryIngest:
    """What is damaged in the logs or was not recorded."""

    skipped: dict[str, int]
    """Number of problems by reason."""
    problems: list[Problem]
    not_recorded: list[NotRecorded]


@dataclass(frozen=True)
class SummaryFinding:
    """One finding; the most severe come first."""

    kind: str
    severity: Severity
    title: str
    rank: int | None
    step: int | None
    graph: int | None
    launch: int | None
    kernel: str | None
    buffer: str | None
    argument: str | None
    source: SourceLine | None
    evidence: dict[str, Any]
    """Facts that prove the finding; their names depend on the kind."""
    page: str
    rule: str
    """Sentence that says how it was decided."""
    log: str | None
    proof: list[str]
    """At most two lines with the measurements that prove it."""
    links: list[ProofLink]
    """Pages that show parts of the proof."""


@dataclass(frozen=True)
class FindingsAnswer:
    """The findings in a trace, and what could not be looked at."""

    format: Literal["stepscope-findings/1"]
    counts: Counts
    findings: list[SummaryFinding]
    ingest: SummaryIngest


@dataclass(frozen=True)
class SummaryStep:
    step: int
    kind: str | None
    by: str | None
    """What ended the step: `user`, `optimizer`, `call` or `generate`."""
    optimizers: str | None
    duration_ns: int | None
    """Duration without compiles."""
    compile_ns: int | None
    launches: int
    subgraph_calls: int
    calls: int
    log: str | None


@dataclass(frozen=True)
class SummarySteps(StepSources):
    rows: list[SummaryStep]
    """First 2,000 steps; `counts.steps` is the number of all steps."""


@dataclass(frozen=True)
class SummaryGraph:
    graph: int
    compile_id: str | None
    aot_id: str | None
    snodes: int | None
    launch_sites: int | None
    launches: int | None
    subgraph_calls: int
    duration_ns: int | None
    estimated_peak_bytes: int | None
    estimated_peak_snode: str | None
    estimated_peak_index: int | None
    measured_peak_bytes: int | None
    measured_peak_snode: str | None
    measured_peak_index: int | None
    log: str | None


@dataclass(frozen=True)
class SummaryCompile:
    compile_id: str
    frame: str | None
    status: str
    attempts: int
    duration_ns: int | None
    cache: str | None
    recompile_reason: str | None
    graph_break_reason: str | None
    log: str | None


@dataclass(frozen=True)
class SummaryOverhead:
    """The recorder's own cost."""

    hook_ns: int | None
    stats_ns: int | None
    log_bytes: int | None
    bytes_per_launch: float | None
    failures: int | None


@dataclass(frozen=True)
class Summary:
    """The findings in a trace, and the facts of its runs."""

    format: Literal["stepscope-summary/1"]
    runs: list[SummaryRun]
    counts: Counts
    ingest: SummaryIngest
    findings: list[SummaryFinding]
    steps: SummarySteps
    time: list[RunSplit]
    """Where the time of the steps goes, for each log that has steps with calls."""
    crash_runs: list[CrashRunRow]
    graphs: list[SummaryGraph]
    memory: MemoryFigures
    compiles: list[SummaryCompile]
    overhead: SummaryOverhead
