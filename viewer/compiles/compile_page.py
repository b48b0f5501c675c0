"""Builds the context of the page of one compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stepscope.viewer.compiles.chosen import (
    ATTEMPT,
    ProvenanceGraph,
    chosen_attempt,
    chosen_compile,
    inductor_graphs,
)
from stepscope.viewer.compiles.queries.compiles import neighbours
from stepscope.viewer.compiles.queries.details import (
    CompileLookup,
    GuardFailure,
    ShapeFact,
    cache_lookups,
    failed_guards,
    shape_facts,
)
from stepscope.viewer.compiles.queries.stages import Attempt, Stage, StageGraph, attempts_of, stages_of, units_of
from stepscope.viewer.compiles.rows import CompileDetail, CompileRow
from stepscope.viewer.records.queries.record_view import record_view
from stepscope.viewer.records.rows import RecordRow, RecordView
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.guard_tree import GuardNode, guard_tree
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.parameters import COMPILE_ID, LOG, RECORD, text
from stepscope.viewer.web.parts import part

MOST_GUARD_LINES = 1_500
_DRAFT_EXPORT = frozenset(
    [
        "exported_program", "guard_added", "missing_fake_kernel", "mismatched_fake_kernel", "expression_created",
        "propagate_real_tensors_provenance", "guard_on_data_dependent_error",
    ]
)  # fmt: skip


@dataclass(frozen=True)
class StageShown:
    stage: str
    graph: StageGraph
    view: RecordView


@dataclass(frozen=True)
class GuardLine:
    """One node of the guard tree."""

    depth: int
    name: str
    """Type of the guard or guard manager, such as ``TENSOR_MATCH`` or ``DictGuardManager``."""
    source: str
    """Expression that a guard manager checks, such as ``L['x']``; empty for a guard."""
    type: str
    code: str
    user_code: str
    place: str
    failed: list[GuardFailure]
    """Failures of this guard that caused later compiles."""
    is_open: bool
    """Whether a guard below this node failed."""


@dataclass(frozen=True)
class Guards:
    record: int
    attempt: int
    guards: int
    latency: str | None
    lines: list[GuardLine]
    left_out: int
    """Number of nodes that only the record's own page shows."""


@dataclass(frozen=True)
class CompilePage:
    detail: CompileDetail
    attempts: list[Attempt]
    attempt: int | None
    """Attempt that the page shows; None if it shows all."""
    attempt_of: dict[int, int]
    """Attempt of each record, keyed by record."""
    stages: list[Stage]
    shown: StageShown | None
    """Graph of the chosen stage; None if the stage has no graph."""
    stage: str
    guards: Guards | None
    failed: list[GuardFailure]
    """Guards of this compile that failed later, and guards of earlier compiles whose failure caused this one."""
    shapes: list[ShapeFact]
    shapes_total: int
    lookups: list[CompileLookup]
    provenance: list[ProvenanceGraph]
    related: list[tuple[str, str]]
    """(name, path) of the pages about the whole run that show records of this compile."""
    previous: tuple[str, str | None] | None
    """Compile id and function of the compile that started before this one."""
    next: tuple[str, str | None] | None


def compile_page(trace: Trace, request: Request) -> CompilePage:
    detail = chosen_compile(trace, request)
    row = detail.row
    attempts, attempt_of = attempts_of(trace, detail)
    attempt = chosen_attempt(request, attempts)
    units = units_of(detail.records, detail.graphs, attempt_of)
    stages = stages_of(detail, units, attempt_of, attempt)
    stage, shown = _shown(trace, request, stages)
    rows = [record for record in detail.records if attempt in (None, attempt_of[record.record])]
    shapes, shapes_total = part("Shapes", ([], 0), shape_facts, trace, rows)
    failed = part("Guards that failed", [], failed_guards, trace, detail)
    previous, following = neighbours(trace, row)
    return CompilePage(
        detail=detail,
        attempts=attempts,
        attempt=attempt,
        attempt_of=attempt_of,
        stages=stages,
        shown=shown,
        stage=stage,
        guards=part(
            "Guards", None, _guards, trace, rows, attempt_of, [one for one in failed if one.of == row.compile_id]
        ),
        failed=failed,
        shapes=shapes,
        shapes_total=shapes_total,
        lookups=part("Cache lookups", [], cache_lookups, trace, row.log, row.compile_id),
        provenance=inductor_graphs(units, attempt),
        related=_related(row, detail.records),
        previous=previous,
        next=following,
    )


def _shown(trace: Trace, request: Request, stages: Sequence[Stage]) -> tuple[str, StageShown | None]:
    """Return the chosen stage and graph; by default the first stage with a graph, and a graph of its last attempt."""
    names = [stage.name for stage in stages]
    name, record = request.text("stage"), request.optional_id("record")
    if name is not None and name not in names:
        raise NotThere(f"There is no stage “{name[:40]}”: stages are {', '.join(names)}.")
    stage = next((s for s in stages if s.name == name or (name is None and s.graphs)), stages[0])
    if record is not None and record not in [graph.record for graph in stage.graphs]:
        raise NotThere(f"Record {record} is not a graph of the stage {stage.title} of this compile.")
    if not stage.graphs:
        return stage.name, None
    last = max(graph.attempt for graph in stage.graphs)
    in_last = sorted((g for g in stage.graphs if g.attempt == last), key=lambda g: "before" in g.label)
    graph = next((g for g in stage.graphs if g.record == record), in_last[0])
    view = record_view(trace, graph.record)
    return stage.name, None if view is None else StageShown(stage.name, graph, view)


def _guards(
    trace: Trace, rows: Sequence[RecordRow], attempt_of: Mapping[int, int], failed: Sequence[GuardFailure]
) -> Guards | None:
    """Return the guard tree of the last attempt that logged one, or None."""
    row = next((row for row in reversed(rows) if row.event == "dynamo_cpp_guards_str" and row.payload_bytes), None)
    if row is None:
        return None
    tree = guard_tree(trace.payload(row.record).decode("utf-8", "replace"))
    lines: list[GuardLine] = []
    for root in tree.roots:
        _add_guard(root, 0, failed, lines)
    shown = lines[:MOST_GUARD_LINES]
    return Guards(row.record, attempt_of[row.record], tree.guards, tree.latency, shown, len(lines) - len(shown))


def _add_guard(node: GuardNode, depth: int, failed: Sequence[GuardFailure], lines: list[GuardLine]) -> bool:
    """Append the node and its descendants to `lines`; return whether a guard among them failed."""
    here = [one for one in failed if node.kind == "guard" and one.is_at(node.code)]
    place = len(lines)
    lines.append(
        GuardLine(depth, node.name, node.source, node.type, node.code, node.user_code, node.place, here, False)
    )
    below = [_add_guard(child, depth + 1, failed, lines) for child in node.children]
    if any(below):
        lines[place] = replace(lines[place], is_open=True)
    return bool(here) or any(below)


def _related(row: CompileRow, rows: Sequence[RecordRow]) -> list[tuple[str, str]]:
    found = []
    if row.graph_break_reason:
        found.append(("graph breaks", f"/graph-breaks?log={row.log}"))
    if row.recompile_reason:
        frame = f"frame-{row.log}-{row.compile_id.rpartition('/')[0]}"
        found.append(("recompiles of the frame", f"/recompiles?log={row.log}#{frame}"))
    if any(row.event in _DRAFT_EXPORT for row in rows):
        found.append(("draft export", "/draft-export"))
    if any((row.name or "").startswith("vllm_") for row in rows):
        found.append(("vLLM's piecewise compiles", "/vllm"))
    return found


ROUTES = (
    Page(
        "/compile/{compile_id}",
        "compiles/page.html",
        "Compile",
        CompilePage,
        compile_page,
        (COMPILE_ID, LOG, ATTEMPT, text("stage", "The stage of a compile to show."), RECORD),
    ),
)
