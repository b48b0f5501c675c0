"""The frozen rows that queries return and pages, JSON twins and reports show.

Ids (`launch`, `site`, `graph`, `call`, `record`, `log`) are those of the index. Sizes in bytes, times in ns;
unknown is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.queries.rows_of_graphs import ArgumentRow as ArgumentRow
from stepscope.viewer.queries.rows_of_graphs import GraphDetail as GraphDetail
from stepscope.viewer.queries.rows_of_graphs import GraphRow as GraphRow
from stepscope.viewer.queries.rows_of_graphs import MemoryStatementRow as MemoryStatementRow
from stepscope.viewer.queries.rows_of_graphs import ScalarRow as ScalarRow
from stepscope.viewer.queries.rows_of_graphs import SiteRow as SiteRow
from stepscope.viewer.queries.rows_of_graphs import SourceLine as SourceLine
from stepscope.viewer.queries.rows_of_runs import Counts as Counts
from stepscope.viewer.queries.rows_of_runs import CrashRunRow as CrashRunRow
from stepscope.viewer.queries.rows_of_runs import Finding as Finding
from stepscope.viewer.queries.rows_of_runs import NotRecorded as NotRecorded
from stepscope.viewer.queries.rows_of_runs import OverheadRow as OverheadRow
from stepscope.viewer.queries.rows_of_runs import Overview as Overview
from stepscope.viewer.queries.rows_of_runs import Problem as Problem
from stepscope.viewer.queries.rows_of_runs import RunRow as RunRow
from stepscope.viewer.queries.rows_of_runs import Severity as Severity
from stepscope.viewer.queries.rows_of_runs import StepRow as StepRow
from stepscope.viewer.queries.rows_of_values import HEALTH as HEALTH
from stepscope.viewer.queries.rows_of_values import ArgumentValues as ArgumentValues
from stepscope.viewer.queries.rows_of_values import BufferDetail as BufferDetail
from stepscope.viewer.queries.rows_of_values import BufferRow as BufferRow
from stepscope.viewer.queries.rows_of_values import Element as Element
from stepscope.viewer.queries.rows_of_values import Health as Health
from stepscope.viewer.queries.rows_of_values import HeatMap as HeatMap
from stepscope.viewer.queries.rows_of_values import KernelArgument as KernelArgument
from stepscope.viewer.queries.rows_of_values import KernelDetail as KernelDetail
from stepscope.viewer.queries.rows_of_values import KernelLaunch as KernelLaunch
from stepscope.viewer.queries.rows_of_values import KernelRow as KernelRow
from stepscope.viewer.queries.rows_of_values import SavedTensorRow as SavedTensorRow
from stepscope.viewer.queries.rows_of_values import Spread as Spread
from stepscope.viewer.queries.rows_of_values import ValueCurve as ValueCurve
from stepscope.viewer.queries.rows_of_values import ValueRow as ValueRow
from stepscope.viewer.queries.rows_of_values import WorstSite as WorstSite


@dataclass(frozen=True)
class Span:
    name: str
    compile_id: str | None
    depth: int
    start_ns: int
    """On the run's monotonic clock."""
    duration_ns: int


@dataclass(frozen=True)
class CallRow:
    call: int
    graph: int
    graph_label: str
    """E.g. ``0/0 forward``; with the function for subgraphs: ``0/0 forward · true_graph_0``."""
    function: str
    parent: int | None
    depth: int
    thread: int
    start_ns: int
    duration_ns: int | None
    """None: not recorded, as of what a debug printer told."""
    launches: int
    state: str


@dataclass(frozen=True)
class LaunchColumns:
    """Launches of a window, as parallel columns; a bin of several launches too narrow to draw has `count` > 1."""

    launch: list[int]
    """For a bin: the longest launch in it."""
    site: list[int]
    thread: list[int]
    start_ns: list[int]
    """Relative to the window's `start_ns`."""
    duration_ns: list[int]
    """-1: the launch did not return; -2: it did, and nobody knows when."""
    count: list[int]
    health: list[int] = field(default_factory=list)
    """Index into `HEALTH` of the worst output, -1: no values; empty when the run recorded none."""


@dataclass(frozen=True)
class Timeline:
    log: int
    step: int
    start_ns: int
    end_ns: int
    window_start_ns: int
    window_end_ns: int
    threads: list[int]
    spans: list[Span]
    calls: list[CallRow]
    launches: LaunchColumns
    sites: dict[int, dict[str, str]]
    """site -> {kernel, kind} of every site in `launches`."""
    total_launches: int


@dataclass(frozen=True)
class LaunchDetail:
    launch: int
    log: int
    rank: int | None
    step: int
    ordinal: int
    """Position in its step, from 1."""
    of: int
    """How many launches the step has."""
    thread: int
    call: int
    graph: GraphRow
    site: SiteRow
    start_ns: int
    step_offset_ns: int
    returned: bool
    duration_ns: int | None
    device_duration_ns: int | None
    previous: int | None
    next: int | None
    written_by: dict[int, int | None]
    """argument -> the launch of this call that wrote its buffer last, None: came in from outside or not known."""
    read_by: dict[int, list[int]]
    """argument written here -> launches of this call that read its buffer before it is written again."""
    config: dict[str, int]
    """Block sizes, ``num_warps`` and ``num_stages`` of a Triton kernel; empty: of another, or the log does not tell."""
    code: str | None
    """The generated code: the kernel's definition and the launch statement's line, cut from the wrapper source."""
    code_first_line: int | None
    values: list[ArgumentValues] = field(default_factory=list)
    """One per argument of the site; empty when the run recorded no values."""
    symbols: dict[str, int | float] = field(default_factory=dict)
    """What the numbers that the generated code computes were in this call."""


@dataclass(frozen=True)
class CompileRow:
    log: int
    compile_id: str
    frame: str | None
    file: str | None
    line: int | None
    function: str | None
    status: str
    attempts: int
    start_unix_ns: int | None
    duration_ns: int | None
    cache: str | None
    recompile_reason: str | None
    graph_break_reason: str | None
    failure: str | None
    artifacts: int
    """Records with this compile id that have a payload."""

    @property
    def shown_status(self) -> str:
        """What its sign is for: an ok compile can be a recompile or end in a graph break."""
        if self.status != "ok":
            return self.status
        if self.graph_break_reason:
            return "graph break"
        return "recompiled" if self.recompile_reason else "ok"


@dataclass(frozen=True)
class RecordRow:
    record: int
    log: int
    line: int
    byte: int
    time_unix_ns: int | None
    source: str
    event: str
    name: str | None
    encoding: str | None
    compile_id: str | None
    attempt: int | None
    payload_bytes: int | None


@dataclass(frozen=True)
class RecordPage:
    """A page of a list of records."""

    rows: list[RecordRow]
    total: int
    offset: int
    limit: int
    kinds: list[tuple[str, int]]
    """(event or artifact name, how many), most first: what the list can be narrowed to."""


@dataclass(frozen=True)
class RecordDetail:
    row: RecordRow
    metadata: dict[str, Any]
    payload: str | None
    """At most `limit` characters."""
    truncated: bool


@dataclass(frozen=True)
class CompileDetail:
    row: CompileRow
    stack: list[SourceLine]
    metrics: dict[str, Any] | None
    graphs: list[GraphRow]
    records: list[RecordRow]
    """Everything logged under this compile id except chromium events."""
    spans: list[Span]
    """Compile spans; `start_ns` relative to the first one."""
