"""Divides the records of one compile into attempts, Inductor graphs and compile stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stepscope.viewer.compiles.rows import CompileDetail
from stepscope.viewer.graphs.rows import GraphRow
from stepscope.viewer.ingest.torch_trace.kinds import KINDS, name_of
from stepscope.viewer.records.rows import RecordRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

TITLES = {
    "dynamo": "Dynamo",
    "pre_grad": "Pre-grad",
    "joint": "Joint",
    "forward": "Forward",
    "backward": "Backward",
    "post_grad": "Post-grad",
    "code": "Output code",
}
"""Titles of the stages, in the order in which a compile passes through them."""
_OPENS_RUN = frozenset(name for name, kind in KINDS.items() if kind.inductor_run == "begins")
CODE = tuple(name for name, kind in KINDS.items() if kind.inductor_run == "code")
_OF_RUN = frozenset(name for name, kind in KINDS.items() if kind.inductor_run)
"""Kinds of records that Inductor logs for one forward, backward or inference graph."""
_FROM_CACHE = ("codecache.py", "aot_autograd_result.py")
"""Modules of PyTorch that log the contents of a cache again."""
LINES_OF_THE_COMPILE = (
    "The code came from a compile cache, so its program lines are those of the original compile. The lists of kernels"
    " show where these lines are now and which have changed."
)


def is_from_cache(source: str) -> bool:
    """Return whether `source`, the line of PyTorch that wrote a record, is in a cache's module."""
    return source.split(":")[0].endswith(_FROM_CACHE)


@dataclass(frozen=True)
class Attempt:
    """An attempt at a compile; Dynamo restarts after some graph breaks."""

    number: int
    """Index in log order, counted from 0."""
    attempt: int
    """PyTorch's number of the attempt, counted from 0."""
    first_record: int
    records: int
    time_unix_ns: int | None
    reason: str | None = None
    """Why Dynamo abandoned this attempt and started the next; None if unknown."""


@dataclass(frozen=True)
class StageGraph:
    record: int
    label: str
    attempt: int
    from_cache: bool
    payload_bytes: int


@dataclass(frozen=True)
class Missing:
    why: str
    is_cached: bool = False
    """Whether a cache had the result, so that the stage runs if the cache is empty."""


@dataclass(frozen=True)
class Stage:
    name: str
    title: str
    graphs: list[StageGraph]
    missing: Missing | None
    """Why the stage has no graph; None if it has one."""


@dataclass
class InductorGraph:
    """One graph that Inductor compiled, with its records keyed by kind."""

    attempt: int
    phase: str = ""
    aot_id: str | None = None
    records: dict[str, RecordRow] = field(default_factory=dict)
    pre_grad: RecordRow | None = None

    @property
    def label(self) -> str:
        return self.phase or "graph"


def kind_of(row: RecordRow) -> str:
    return name_of(row.event, row.name)


def attempts_of(trace: Trace, detail: CompileDetail) -> tuple[list[Attempt], dict[int, int]]:
    """Return the attempts of a compile, and the attempt of each record, keyed by record."""
    attempts: list[Attempt] = []
    of_record: dict[int, int] = {}
    for row in detail.records:
        if not attempts or (row.attempt is not None and row.attempt > attempts[-1].attempt):
            attempts.append(Attempt(len(attempts), row.attempt or 0, row.record, 0, row.time_unix_ns))
        attempts[-1] = replace(attempts[-1], records=attempts[-1].records + 1)
        of_record[row.record] = attempts[-1].number
    return _with_reasons(trace, detail, attempts, of_record), of_record


def _with_reasons(
    trace: Trace, detail: CompileDetail, attempts: list[Attempt], of_record: Mapping[int, int]
) -> list[Attempt]:
    found = sql.rows(
        trace,
        "SELECT record, cause FROM compile_events WHERE log = ? AND compile_id = ? AND kind = 'graph_break'",
        [detail.row.log, detail.row.compile_id],
    )
    causes: dict[int, list[str]] = {}
    for record, cause in found:
        causes.setdefault(of_record.get(record, -1), []).append(cause)
    said = (detail.metrics or {}).get("restart_reasons")
    others = [reason for reason in said if isinstance(reason, str)] if isinstance(said, list) else []
    out = []
    for attempt in attempts:
        reasons = causes.get(attempt.number) or others if attempt is not attempts[-1] else []
        out.append(replace(attempt, reason="\n".join(dict.fromkeys(reasons)) or None))
    return out


def units_of(
    rows: Iterable[RecordRow], graphs: Sequence[GraphRow], of_record: Mapping[int, int]
) -> list[InductorGraph]:
    """Group the records of a compile into the graphs that Inductor compiled, each with its phase."""
    known = {graph.output_code: graph for graph in graphs}
    units: list[InductorGraph] = []
    pre_grad: tuple[int, RecordRow] | None = None
    for row in rows:
        kind, attempt = kind_of(row), of_record[row.record]
        if row.payload_bytes is None:
            continue
        if kind in ("before_pre_grad_graph", "inductor_pre_grad_graph"):
            pre_grad = (attempt, row)
        if kind not in _OF_RUN:
            continue
        here = units[-1].records if units else {}
        is_done = any(code in here for code in CODE) and kind in _OPENS_RUN.union(CODE)
        if not units or units[-1].attempt != attempt or is_done or (kind in here and kind in _OPENS_RUN):
            units.append(InductorGraph(attempt, pre_grad=pre_grad[1] if pre_grad and pre_grad[0] == attempt else None))
        units[-1].records.setdefault(kind, row)
        if kind == "inductor_output_code" and row.record in known:
            units[-1].phase, units[-1].aot_id = known[row.record].phase or "", known[row.record].aot_id
    _name_phases(units, {kind_of(row) for row in rows})
    return units


def _name_phases(units: Sequence[InductorGraph], kinds: set[str]) -> None:
    """Set the missing phases from the kinds of records; a backward graph follows its forward graph."""
    for before, unit in zip([None, *units], units, strict=False):
        if unit.phase:
            continue
        if "aot_inference_graph" in kinds:
            unit.phase = "inference"
        elif "aot_forward_graph" in kinds or "aot_backward_graph" in kinds:
            unit.phase = "backward" if before and before.phase == "forward" else "forward"


def stages_of(
    detail: CompileDetail, units: Sequence[InductorGraph], of_record: Mapping[int, int], attempt: int | None = None
) -> list[Stage]:
    """Return all stages with the graphs of one attempt, or of all; a stage without graphs says why."""
    unit_of = {row.record: unit for unit in units for row in unit.records.values()}
    found: dict[str, list[StageGraph]] = {name: [] for name in TITLES}
    for row in detail.records:
        kind = KINDS.get(kind_of(row))
        if kind is None or not kind.stage or row.payload_bytes is None or attempt not in (None, of_record[row.record]):
            continue
        unit = unit_of.get(row.record)
        label = ", ".join(part for part in (unit.label if unit else "", kind.variant) if part)
        cached = is_from_cache(row.source)
        found[kind.stage].append(StageGraph(row.record, label, of_record[row.record], cached, row.payload_bytes))
    rows = [row for row in detail.records if attempt in (None, of_record[row.record])]
    return [
        Stage(name, title, _told_apart(found[name]), None if found[name] else _missing(name, detail, rows, found))
        for name, title in TITLES.items()
    ]


def _told_apart(graphs: list[StageGraph]) -> list[StageGraph]:
    """Number the graphs that share an attempt and a label."""
    total = Counter((graph.attempt, graph.label) for graph in graphs)
    seen: Counter[tuple[int, str]] = Counter()
    out = []
    for graph in graphs:
        key = (graph.attempt, graph.label)
        seen[key] += 1
        out.append(replace(graph, label=f"{graph.label or 'graph'} {seen[key]}") if total[key] > 1 else graph)
    return out


def _missing(
    name: str, detail: CompileDetail, rows: Sequence[RecordRow], found: Mapping[str, list[StageGraph]]
) -> Missing:
    """Return why a stage of this compile has no graph."""
    row, kinds = detail.row, {kind_of(record) for record in rows}
    if row.failure and not any(found[later] for later in list(TITLES)[list(TITLES).index(name) :]):
        return Missing(f"The compile failed before this stage was logged: {row.failure}")
    if name == "dynamo":
        if row.status in ("skipped", "empty"):
            return Missing("Dynamo found nothing to compile in this frame.")
        return Missing("Dynamo logged no graph: the compile ended before one was complete, or Dynamo did not start it.")
    if not found["dynamo"] and not any(found.values()):
        return Missing("Dynamo passed no graph on, so this stage was never reached.")
    if "aotautograd_cache_hit" in kinds and name in ("pre_grad", "joint"):
        return Missing("AOTAutograd's cache had the result (hit), so this stage did not run.", is_cached=True)
    if name in ("joint", "backward") and "aot_inference_graph" in kinds:
        return Missing(
            "No gradients are required, so AOTAutograd traced an inference graph, which is shown under Forward."
        )
    if name == "post_grad" and "fx_graph_cache_hit" in kinds:
        return Missing(
            "The FX graph cache had the code (hit), so the post-grad passes did not run; this version of PyTorch "
            "does not log the graph that was stored with the code.",
            is_cached=True,
        )
    if name == "code" and found["post_grad"]:
        return Missing(
            "The passes ran, but the log contains no code: Inductor failed after them, or its backend logs none."
        )
    if name == "pre_grad":
        return Missing(
            "This log contains no pre-grad graph: older versions of PyTorch log none, and other backends have none."
        )
    return Missing("The log contains no record of this stage: the backend is not Inductor, or it logs none.")
