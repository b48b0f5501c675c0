"""Frozen rows about runs, the verdict on them and their steps: what the first page needs. `rows` names them too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from stepscope.viewer.graphs.rows import GraphRow, SourceLine

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
    """None: `remark` says why."""
    format_version: int | None
    complete: bool | None
    size_bytes: int
    start_unix_ns: int | None
    config: dict[str, Any]
    parent_pid: int | None = None
    forked: bool = False
    """It is a copy of the process `parent_pid`, which was recorded too."""
    crash_run: int | None = None
    """Which run of `stepscope run --crash` it was of, from 1."""
    writer: Literal["stepscope", "torch"] | None = None
    """None: the log holds no record."""

    @property
    def is_left_out(self) -> bool:
        """The log is of a newer format than this stepscope reads."""
        return self.writer == "stepscope" and self.complete is None

    @property
    def remark(self) -> str | None:
        """What is special about the log, in a few words; None: it is a whole one of stepscope."""
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


@dataclass(frozen=True)
class Problem:
    log: str
    """The log's file name."""
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


SIDES = ("in", "with", "out", "not_read", "compute_sanitizer")
"""Evidence of a finding that is sentences: what went in, what came out, what a tool found there."""


@dataclass(frozen=True)
class Finding:
    """One line of the verdict."""

    kind: str
    severity: Severity
    title: str
    rule: str
    """How it was decided, in a sentence."""
    evidence: dict[str, Any]
    page: str
    rank: int | None = None
    step: int | None = None
    graph: int | None = None
    launch: int | None = None
    kernel: str | None = None
    buffer: str | None = None
    argument: str | None = None
    source: SourceLine | None = None
    log: int | None = None


@dataclass(frozen=True)
class StepRow:
    log: int
    step: int
    kind: str | None
    by: str | None
    start_ns: int
    end_ns: int | None
    duration_ns: int | None
    """Without any compile."""
    launches: int
    calls: int
    compile_ns: int | None = None
    """That the compiles took which it has triggered; None: the log does not say."""
    optimizers: str | None = None
    """Classes of those that ended it."""
    subgraph_calls: int = 0
    """Calls of subgraphs, which are no launches of kernels."""

    @property
    def launch_rows(self) -> int:
        """The launches and the calls of subgraphs among them."""
        return self.launches + self.subgraph_calls


@dataclass(frozen=True)
class ToolErrorRow:
    """What compute-sanitizer found; of errors that are alike, the first."""

    text: str
    """``Invalid __global__ write of size 4 bytes``."""
    kernel: str | None
    file: str | None
    line: int | None
    where: str | None
    """``thread (0,0,0) in block (8,0,0)``."""
    details: list[str]
    times: int

    @property
    def title(self) -> str:
        """In one line."""
        at = f" in {self.kernel}" if self.kernel else ""
        place = f" ({self.file}:{self.line})" if self.file and self.line else ""
        where = f", {self.where}" if self.where else ""
        often = f", {self.times:,} times" if self.times > 1 else ""
        return f"{self.text}{at}{place}{where}{often}"


@dataclass(frozen=True)
class CrashRunRow:
    """One of the runs of `stepscope run --crash`, and whether the program still died of the same in it."""

    run: int
    """From 1."""
    purpose: str
    asked: list[str]
    """``CUDA_LAUNCH_BLOCKING=1``, ``level values``, ``kernels triton_*``, ``compute-sanitizer --tool memcheck``."""
    ended: str
    """``SIGSEGV``, ``exit code 0``, ``ValueError: x``, ``time limit``."""
    symptom: str | None
    survived: bool | None
    """The symptom of the first run; None: of the first run, and where it cannot be told."""
    duration_ns: int
    step: int | None
    launch: int | None
    """The one at which it died, as the crash finding says it."""
    launch_in_step: int | None
    """Its position in the step, from 1, ..."""
    launches_of_step: int | None
    """... of so many that were seen."""
    kernel: str | None
    in_flight: int | None
    """Launches that the device had not finished; None: not known."""
    logs: list[int]
    said: list[str]
    """The last lines that it wrote to standard error."""
    tool_errors: list[ToolErrorRow] = field(default_factory=list)
    """What the tool that it ran under found."""


@dataclass(frozen=True)
class Overview:
    runs: list[RunRow]
    counts: Counts
    findings: list[Finding]
    steps: list[StepRow]
    graphs: list[GraphRow]
    """On the first page only the first ones; `counts` tells how many there are."""
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
    """Plain sentences about what this trace cannot show, e.g. that PyTorch alone wrote it."""
    crash_runs: list[CrashRunRow] = field(default_factory=list)
