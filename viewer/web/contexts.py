"""What each page knows: one typed context per page, from which its HTML and its JSON twin are both made."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.compiles.rows import CompileRow
from stepscope.viewer.findings.crash.launch_deaths import LaunchDeath
from stepscope.viewer.graphs.rows import GraphDetail, GraphRow, SiteRow, SourceLine
from stepscope.viewer.memory.queries.lifecycle_checks import CheckMismatchRow
from stepscope.viewer.memory.queries.steps import RunCurve
from stepscope.viewer.memory.recompute_rows import RecomputeDetail, RecomputeRow
from stepscope.viewer.memory.rows import (
    Alive,
    GraphMemory,
    GrowthRow,
    LifetimeMismatchRow,
    LiveCurve,
    MemoryCallRow,
    MemoryComparison,
    NodeMemory,
    RunPeak,
)
from stepscope.viewer.overview.contexts import MiniCurve
from stepscope.viewer.overview.rows import NotRecorded, Problem, RunRow, StepRow
from stepscope.viewer.records.rows import RecordDetail, RecordPage, RecordRow, RecordView
from stepscope.viewer.search.queries.jump import Jump
from stepscope.viewer.search.queries.search import SearchPiece
from stepscope.viewer.search.queries.tables import Answer, TableRow
from stepscope.viewer.steps.queries.step_sources import StepSources
from stepscope.viewer.steps.rows import LaunchDetail, Timeline
from stepscope.viewer.text.highlight import Line
from stepscope.viewer.values.rows import (
    BufferDetail,
    BufferRow,
    HeatMap,
    KernelDetail,
    KernelRow,
    ValueCurve,
    WorstSite,
)


@dataclass(frozen=True)
class StepsPage:
    runs: list[RunRow]
    log: int | None
    """As the address has it; None: the steps of all logs are listed."""
    steps: list[StepRow]
    curve: RunCurve | None
    """Live bytes over the steps; None: nobody followed storages."""
    sources: StepSources


@dataclass(frozen=True)
class LaunchPage:
    """The side panel of a launch."""

    launch: LaunchDetail
    code_lines: list[tuple[int | None, Line]]
    """The generated code: the wrapper's line number and its coloured pieces; no number where lines are left out."""
    death: LaunchDeath | None = None
    """What it has to do with the death of its process."""


@dataclass(frozen=True)
class StepPage:
    row: StepRow
    steps: list[StepRow]
    """Every step of the same log."""
    timeline: Timeline
    launch: LaunchPage | None
    """What the panel shows; None: closed."""
    live: LiveCurve | None
    """Live bytes in the step; None: nobody followed storages."""


@dataclass(frozen=True)
class GraphsPage:
    graphs: list[GraphRow]
    """From `offset` on, at most `limit`."""
    not_recorded: list[NotRecorded]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True)
class GraphPage:
    detail: GraphDetail
    not_recorded: list[NotRecorded]
    site: int | None
    """The launch site that the address points at."""


@dataclass(frozen=True)
class BuffersPage:
    graph: GraphRow
    buffers: list[BufferRow]


@dataclass(frozen=True)
class BufferPage:
    detail: BufferDetail
    log: int


@dataclass(frozen=True)
class KernelsPage:
    kernels: list[KernelRow]


@dataclass(frozen=True)
class KernelPage:
    detail: KernelDetail


@dataclass(frozen=True)
class ValuesPage:
    heat: HeatMap
    worst: list[WorstSite]
    """Sites that had anything worse than zeros, worst first, in all of the log."""
    runs: list[RunRow]
    recorded: bool
    """Whether the log has a value of any output."""


@dataclass(frozen=True)
class CurveLink:
    """Another curve: what stands in its address, and the argument that it is of."""

    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str
    name: str
    shown_as: str
    """``before`` or ``after`` the launch: a value is often read after the launch before."""


@dataclass(frozen=True)
class CurvePage:
    curve: ValueCurve
    statistic: str
    """The one to begin with."""
    site: SiteRow
    graph: GraphRow
    others: list[CurveLink]
    """Of the arguments of the same launch."""


@dataclass(frozen=True)
class MemoryOverviewPage:
    """Of a whole run."""

    runs: list[RunRow]
    log: int
    curve: RunCurve | None
    peaks: list[RunPeak]
    graphs: list[MiniCurve]
    graphs_left: int
    growth: list[GrowthRow] | None
    mismatches: list[LifetimeMismatchRow]
    checks: list[CheckMismatchRow]
    recompute: list[RecomputeRow]
    missing: list[str]


@dataclass(frozen=True)
class NodeAlive:
    """What was alive at the chosen scheduler node, or, where none is chosen, at the peak."""

    snode: str | None
    snode_index: int | None
    kernel: str | None
    source: SourceLine | None
    node: NodeMemory | None
    """None: no node belongs to the place, or the schedule was not recorded."""
    alive: Alive | None
    """Measured; None: no call was measured."""
    remark: str | None
    """Where it was measured, if that is not plain."""


@dataclass(frozen=True)
class GraphMemoryPage:
    graph: GraphRow
    memory: GraphMemory | None
    sources: dict[int, SourceLine]
    """launch site -> line of the model."""
    calls: list[MemoryCallRow]
    """To choose from, the one with the highest peak first."""
    at: NodeAlive | None
    snode: int | None
    """As the address has it."""
    with_curves: bool
    """False: only what is alive was asked for; the curves are on the page already."""
    by: str
    """How the table of what is alive is grouped."""
    mismatches: list[LifetimeMismatchRow]
    checks: list[CheckMismatchRow]
    missing: list[str]
    """What was not recorded, and why."""
    against: MemoryComparison | None
    against_name: str | None
    """As it stands in the address."""
    others: list[GraphRow]
    """Graphs to look at side by side."""


@dataclass(frozen=True)
class RecomputePage:
    detail: RecomputeDetail
    verdict: str
    previous: int | None
    next: int | None


@dataclass(frozen=True)
class RecordsPage:
    page: RecordPage
    log: int | None
    compile_id: str | None
    kind: str | None
    text: str | None


@dataclass(frozen=True)
class RecordShown:
    detail: RecordDetail
    view: RecordView
    previous: RecordRow | None
    """Of the same compile, without chromium events."""
    next: RecordRow | None
    line: int | None
    """Of the payload, counted from 1: the one that was asked for."""
    first_line: int
    """Of `lines`."""
    lines: list[str]
    """The one asked for and those around it."""


@dataclass(frozen=True)
class SearchPage:
    text: str | None
    regex: bool
    case: bool
    log: int | None
    kind: str | None
    compile_id: str | None
    offset: int
    piece: SearchPiece | None
    """None: nothing is looked for, or what is looked for cannot be."""
    problem: str | None
    kinds: list[tuple[str, int]]
    """(event or artifact name, how many), most first."""
    logs: list[str]
    """Paths, by number."""


@dataclass(frozen=True)
class TablesPage:
    tables: list[TableRow]


@dataclass(frozen=True)
class SqlPage:
    query: str | None
    answer: Answer | None
    problem: str | None
    most_rows: int
    seconds: float
    memory_bytes: int
    tables: list[TableRow]


@dataclass(frozen=True)
class News:
    """What tells one reading of a trace that grows from another."""

    logs: int
    records: int


@dataclass(frozen=True)
class JumpAnswer:
    jumps: list[Jump]


@dataclass(frozen=True)
class ProblemsPage:
    problems: list[Problem]
    not_recorded: list[NotRecorded]
    failed: list[CompileRow]
    hook_failures: int | None
