"""What each page about compilation over a whole run knows."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.compiles.queries.caches import Caches
from stepscope.viewer.compiles.queries.compile_time import Flame, SpanTotal
from stepscope.viewer.compiles.queries.cuda_graphs import CudaGraphs
from stepscope.viewer.compiles.queries.draft_export import DraftExport
from stepscope.viewer.compiles.queries.graph_breaks import GraphBreaks
from stepscope.viewer.compiles.queries.metrics import CompileMetrics
from stepscope.viewer.compiles.queries.recompiles import Recompiles
from stepscope.viewer.compiles.queries.vllm import Vllm
from stepscope.viewer.overview.rows import RunRow


@dataclass(frozen=True)
class GraphBreaksPage:
    breaks: GraphBreaks
    runs: list[RunRow]
    log: int | None


@dataclass(frozen=True)
class RecompilesPage:
    recompiles: Recompiles
    runs: list[RunRow]
    log: int | None


@dataclass(frozen=True)
class CachesPage:
    caches: Caches
    runs: list[RunRow]
    log: int | None
    cache: str | None
    state: str | None


@dataclass(frozen=True)
class CudaGraphsPage:
    cuda_graphs: CudaGraphs


@dataclass(frozen=True)
class MetricsPage:
    metrics: CompileMetrics
    runs: list[RunRow]
    log: int | None


@dataclass(frozen=True)
class CompileTimePage:
    flame: Flame | None
    """None: the log has no compile spans."""
    totals: list[SpanTotal]
    runs: list[RunRow]
    log: int | None
    sort: str


@dataclass(frozen=True)
class DraftExportPage:
    export: DraftExport
    kind: str | None


@dataclass(frozen=True)
class VllmPage:
    vllm: Vllm | None
