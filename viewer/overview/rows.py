"""Rows of runs, findings and steps for the first page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from stepscope.tracer.schema.machine import Machine
from stepscope.viewer.graphs.rows import GraphRow, SourceLine
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.text.formats import basename

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class RunRow:
    log: int
    path: str
    rank: int | None
    world_size: int | None
    pid: int | None
    torch: str | None
    python: str | None
    stepscope: str | None
    devices: list[str]
    argv: list[str]
    level: str | None
    """Recording level; None if unknown, for which `remark` gives the reason."""
    format_version: int | None
    complete: bool | None
    size_bytes: int
    start_unix_ns: int | None
    config: dict[str, Any]
    parent_pid: int | None = None
    forked: bool = False
    """Whether the process is a fork of the recorded process `parent_pid`."""
    crash_run: int | None = None
    """Number of the run of `stepscope run --crash`, counted from 1."""
    writer: Literal["stepscope", "torch"] | None = None
    """Program that wrote the log; None if the log has no records."""
    triton: str | None = None
    cuda: str | None = None
    machine: Machine | None = None
    """The machine and the installed software; None if the log does not say it."""

    @property
    def command(self) -> str:
        """Return the command line, with the interpreter as ``python`` or ``python3.11`` instead of its path."""
        first = basename(self.argv[0]) if self.argv else ""
        return " ".join([first, *self.argv[1:]] if first.startswith("python") else self.argv)

    @property
    def is_left_out(self) -> bool:
        """Return whether the log was not read because its format is newer than this version of stepscope."""
        return self.writer == "stepscope" and self.complete is None

    @property
    def remark(self) -> str | None:
        """Return a phrase that describes an unusual log; None for an intact log of stepscope."""
        if self.is_left_out:
            return f"a log of format version {self.format_version}, which was not read"
        if self.writer == "torch":
            return "TORCH_TRACE log"
        if self.writer is None:
            return "a log without a record"
        return "a stepscope log whose run record is damaged or missing" if self.level is None else None


@dataclass(frozen=True)
class Counts:
    logs: int
    records: int
    compiles: int
    graphs: int
    launch_sites: int | None
    launches: int | None
    value_rows: int | None
    steps: int | None
    lifetime_events: int | None
    subgraph_calls: int = 0
    judged_launches: int | None = None
    """The number of launches that the judge recomputed; None if it judged no step."""


@dataclass(frozen=True)
class Problem:
    log: str
    """File name of the log."""
    line: int | None
    byte: int | None
    reason: str
    text: str


@dataclass(frozen=True)
class NotRecorded:
    what: str
    why: str
    log: int | None
    graph: int | None
    count: int


@dataclass(frozen=True)
class OverheadRow:
    hook_ns: int | None
    stats_ns: int | None
    wall_ns: int | None
    log_bytes: int | None
    bytes_per_launch: float | None
    failures: int | None


SEVERITY_SIGNS = {"critical": "✖", "warning": "▲", "info": "●"}
SIDES = ("in", "with", "out", "not_read", "compute_sanitizer")
"""Keys of evidence that consists of sentences about inputs, outputs and what a tool found."""


@dataclass(frozen=True)
class ProofLink:
    """A page that shows a part of the proof of a finding."""

    text: str
    """What the link does, such as ``open launch 41``."""
    page: str


@dataclass(frozen=True)
class Finding:
    """One finding about the run."""

    kind: str
    severity: Severity
    title: str
    rule: str
    """Sentence that says how it was decided."""
    evidence: dict[str, Any]
    page: str
    """Page that proves it."""
    rank: int | None = None
    step: int | None = None
    graph: int | None = None
    launch: int | None = None
    kernel: str | None = None
    buffer: str | None = None
    argument: str | None = None
    source: SourceLine | None = None
    log: int | None = None
    proof: list[str] = field(default_factory=list)
    """At most two lines with the measurements that prove it."""
    links: list[ProofLink] = field(default_factory=list)

    @property
    def compile_ids(self) -> list[str]:
        """Return the compiles that the evidence names; at most the examples that it lists."""
        one = self.evidence.get("compile_id")
        return [*(self.evidence.get("compile_ids") or ()), *([one] if one else ())]


@dataclass(frozen=True)
class StepRow:
    log: int
    step: int
    kind: str | None
    by: str | None
    start_ns: int
    end_ns: int | None
    duration_ns: int | None
    """Duration without compiles."""
    launches: int
    calls: int
    compile_ns: int | None = None
    """Time of the compiles that the step triggered; None if unknown."""
    optimizers: str | None = None
    """Classes of the optimizers that ended it."""
    subgraph_calls: int = 0
    """Number of calls of subgraphs, which are not launches of kernels."""

    @property
    def launch_rows(self) -> int:
        """Return the number of launches and calls of subgraphs."""
        return self.launches + self.subgraph_calls


@dataclass(frozen=True)
class ToolErrorRow:
    """An error that compute-sanitizer found; of equal errors, the first."""

    text: str
    """Text such as ``Invalid __global__ write of size 4 bytes``."""
    kernel: str | None
    file: str | None
    line: int | None
    where: str | None
    """Place such as ``thread (0,0,0) in block (8,0,0)``."""
    details: list[str]
    times: int

    @property
    def title(self) -> str:
        """Return the error in one line."""
        at = f" in {self.kernel}" if self.kernel else ""
        place = f" ({self.file}:{self.line})" if self.file and self.line else ""
        where = f", {self.where}" if self.where else ""
        often = f", {self.times:,} times" if self.times > 1 else ""
        return f"{self.text}{at}{place}{where}{often}"


@dataclass(frozen=True)
class CrashRunRow:
    """One run of `stepscope run --crash`, and whether the program died with the same symptom."""

    run: int
    """Number of the run, counted from 1."""
    purpose: str
    asked: list[str]
    """Settings, such as ``CUDA_LAUNCH_BLOCKING=1``, ``level values`` or ``compute-sanitizer --tool memcheck``."""
    ended: str
    """How the run ended, such as ``SIGSEGV``, ``exit code 0``, ``ValueError: x`` or ``time limit``."""
    symptom: str | None
    survived: bool | None
    """Whether the symptom of the first run occurred again; None for the first run and if unknown."""
    duration_ns: int
    step: int | None
    launch: int | None
    """Launch at which the process died, as in the crash finding."""
    launch_in_step: int | None
    """Position of the launch in its step, counted from 1."""
    launches_of_step: int | None
    """Number of launches of that step that were recorded."""
    kernel: str | None
    in_flight: int | None
    """Number of launches that the device had not finished; None if unknown."""
    logs: list[int]
    said: list[str]
    """Last lines that the run wrote to standard error."""
    tool_errors: list[ToolErrorRow] = field(default_factory=list)
    """Errors found by the tool that the program ran under."""


@dataclass(frozen=True)
class Overview:
    runs: list[RunRow]
    counts: Counts
    findings: list[Finding]
    steps: list[StepRow]
    graphs: list[GraphRow]
    """Graphs, of which the first page has only the first ones; `counts` has their number."""
    compile_count: int
    compile_duration_ns: int | None
    cache_counts: dict[str, int]
    graph_breaks: int
    problems: int
    skipped: dict[str, int]
    not_recorded: list[NotRecorded]
    overhead: OverheadRow
    index_bytes: int
    notes: list[str] = field(default_factory=list)
    """Sentences about what this trace cannot show, for example because PyTorch alone wrote it."""
    crash_runs: list[CrashRunRow] = field(default_factory=list)
    time: list[RunSplit] = field(default_factory=list)
    """Where the time of the steps goes, for each log that has steps with calls."""
