"""From an address to the context of the pages of compiles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.viewer.compiles.contexts import (
    CompilePage,
    CompilesPage,
    GuardLine,
    Guards,
    ProvenanceGraph,
    ProvenancePage,
    StageShown,
)
from stepscope.viewer.compiles.rows import CompileDetail, CompileRow
from stepscope.viewer.records.rows import RecordRow
from stepscope.viewer.web.addresses import Elsewhere, NotThere, Page, Request, unslug
from stepscope.viewer.web.parts import part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepscope.viewer.compiles.queries.details import FailedGuard
    from stepscope.viewer.compiles.queries.stages import Attempt, Stage, Unit
    from stepscope.viewer.store.trace import Trace
    from stepscope.viewer.text.guard_tree import GuardNode

COMPILES_PER_PAGE = 100
STACKS_PER_PAGE = 200
MOST_GUARD_LINES = 1_500
SORTS: dict[str, Callable[[CompileRow], Any]] = {
    "start": lambda row: (row.log, row.start_unix_ns or 0),
    "status": lambda row: row.shown_status,
    "frame": lambda row: (row.function or "", row.file or "", row.line or 0),
    "attempts": lambda row: row.attempts,
    "duration": lambda row: -1 if row.duration_ns is None else row.duration_ns,
    "cache": lambda row: row.cache or "",
    "artifacts": lambda row: row.artifacts,
}
LINE = re.compile(r"(?:(pre|post|code)-)?(\d{1,9})")
_DRAFT_EXPORT = frozenset(
    [
        "exported_program", "guard_added", "missing_fake_kernel", "mismatched_fake_kernel", "expression_created",
        "propagate_real_tensors_provenance", "guard_on_data_dependent_error",
    ]
)  # fmt: skip


def compiles_page(trace: Trace, request: Request) -> CompilesPage:
    from stepscope.viewer.compiles.queries.compiles import list_compiles, output_codes
    from stepscope.viewer.compiles.queries.stack_trie import stack_trie

    everything = list_compiles(trace)
    status, text, log = request.text("status"), request.text("text"), request.optional_id("log")
    sort, offset = request.text("sort") or "start", max(0, request.number("offset") or 0)
    if sort not in SORTS:
        raise NotThere(f"Compiles cannot be sorted by “{sort[:40]}”, only by {', '.join(SORTS)}.")
    matching = [row for row in everything if (log is None or row.log == log) and _holds(row, text)]
    statuses = Counter(row.shown_status for row in matching).most_common()
    matching = [row for row in matching if status is None or row.shown_status == status]
    trie = stack_trie(trace, matching, max(0, request.number("stacks") or 0), STACKS_PER_PAGE)
    reverse = request.text("order") == "down"
    rows = sorted(matching, key=SORTS[sort], reverse=reverse)[offset : offset + COMPILES_PER_PAGE]
    return CompilesPage(
        compiles=rows,
        output_codes=output_codes(trace, rows),
        total=len(matching),
        all_compiles=len(everything),
        statuses=statuses,
        status=status,
        text=text,
        log=log,
        sort=sort,
        reverse=reverse,
        offset=offset,
        limit=COMPILES_PER_PAGE,
        trie=trie,
    )


def _holds(row: CompileRow, text: str | None) -> bool:
    if text is None:
        return True
    held = (row.compile_id, row.frame, row.file, row.failure, row.recompile_reason, row.graph_break_reason)
    return any(text.lower() in part.lower() for part in held if part)


def compile_page(trace: Trace, request: Request) -> CompilePage:
    from stepscope.viewer.compiles.queries.compiles import neighbours
    from stepscope.viewer.compiles.queries.details import cache_lookups, failed_guards, shape_facts
    from stepscope.viewer.compiles.queries.stages import attempts_of, stages_of, units_of

    detail = _detail(trace, request)
    row = detail.row
    attempts, attempt_of = attempts_of(trace, detail)
    attempt = _attempt(request, attempts)
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
        lookups=part("Looks into caches", [], cache_lookups, trace, row.log, row.compile_id),
        provenance=_graphs(units, attempt),
        related=_related(row, detail.records),
        previous=previous,
        next=following,
    )


def _detail(trace: Trace, request: Request) -> CompileDetail:
    from stepscope.viewer.compiles.queries.compiles import compile_detail
    from stepscope.viewer.graphs.queries.graphs import graphs_of_compile

    compile_id = unslug(request.path["compile_id"]).replace("_", "/")
    log = request.optional_id("log") or 0
    detail = compile_detail(trace, log, compile_id)
    if detail is None:
        graphs = graphs_of_compile(trace, log, compile_id)
        if graphs:  # it was compiled before the log began, or its records are damaged
            raise Elsewhere(f"/graphs/{graphs[0].graph}")
        raise NotThere(f"Log {log} of this trace holds no compile {compile_id}.")
    return detail


def _attempt(request: Request, attempts: Sequence[Attempt]) -> int | None:
    attempt = request.optional_id("attempt")
    if attempt is not None and attempt >= len(attempts):
        raise NotThere(f"This compile has {len(attempts)} attempts, counted from 0: there is no attempt {attempt}.")
    return attempt


def _shown(trace: Trace, request: Request, stages: Sequence[Stage]) -> tuple[str, StageShown | None]:
    """The chosen stage, else the first that has a graph; of its graphs the chosen one, else one of the last attempt."""
    from stepscope.viewer.records.queries.record_view import record_view

    names = [stage.name for stage in stages]
    name, record = request.text("stage"), request.optional_id("record")
    if name is not None and name not in names:
        raise NotThere(f"There is no stage “{name[:40]}”: stages are {', '.join(names)}.")
    stage = next((s for s in stages if s.name == name or (name is None and s.graphs)), stages[0])
    if record is not None and record not in [graph.record for graph in stage.graphs]:
        raise NotThere(f"Record {record} is no graph of this compile's stage {stage.title}.")
    if not stage.graphs:
        return stage.name, None
    last = max(graph.attempt for graph in stage.graphs)
    in_last = sorted((g for g in stage.graphs if g.attempt == last), key=lambda g: "before" in g.label)
    graph = next((g for g in stage.graphs if g.record == record), in_last[0])
    view = record_view(trace, graph.record)
    return stage.name, None if view is None else StageShown(stage.name, graph, view)


def _guards(
    trace: Trace, rows: Sequence[RecordRow], attempt_of: Mapping[int, int], failed: Sequence[FailedGuard]
) -> Guards | None:
    """The tree of the last attempt that has one."""
    from stepscope.viewer.text.guard_tree import guard_tree

    row = next((row for row in reversed(rows) if row.event == "dynamo_cpp_guards_str" and row.payload_bytes), None)
    if row is None:
        return None
    tree = guard_tree(trace.payload(row.record).decode("utf-8", "replace"))
    lines: list[GuardLine] = []
    for root in tree.roots:
        _add_guard(root, 0, failed, lines)
    shown = lines[:MOST_GUARD_LINES]
    return Guards(row.record, attempt_of[row.record], tree.guards, tree.latency, shown, len(lines) - len(shown))


def _add_guard(node: GuardNode, depth: int, failed: Sequence[FailedGuard], lines: list[GuardLine]) -> bool:
    """Adds a node and all below it; whether a guard that failed is among them."""
    here = [one for one in failed if node.kind == "guard" and one.is_at(node.code)]
    place = len(lines)
    lines.append(
        GuardLine(depth, node.name, node.source, node.type, node.code, node.user_code, node.place, here, False)
    )
    below = [_add_guard(child, depth + 1, failed, lines) for child in node.children]
    if any(below):
        lines[place] = replace(lines[place], is_open=True)
    return bool(here) or any(below)


def _graphs(units: Sequence[Unit], attempt: int | None) -> list[ProvenanceGraph]:
    return [
        ProvenanceGraph(number, unit.label, unit.aot_id, unit.attempt)
        for number, unit in enumerate(units)
        if attempt in (None, unit.attempt)
    ]


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


def provenance_page(trace: Trace, request: Request) -> ProvenancePage:
    from stepscope.viewer.compiles.queries.provenance_panes import provenance_panes
    from stepscope.viewer.compiles.queries.stages import attempts_of, units_of

    detail = _detail(trace, request)
    attempts, attempt_of = attempts_of(trace, detail)
    units = units_of(detail.records, detail.graphs, attempt_of)
    graphs = _graphs(units, _attempt(request, attempts))
    wanted = request.optional_id("graph")
    if wanted is not None and wanted not in [graph.number for graph in graphs]:
        raise NotThere(f"Inductor compiled {len(units)} graphs here, counted from 0: there is no graph {wanted}.")
    if not graphs:
        return ProvenancePage(detail.row, graphs, None, None, None)
    graph = graphs[0].number if wanted is None else wanted
    return ProvenancePage(detail.row, graphs, graph, provenance_panes(trace, detail, units[graph]), _line(request))


def _line(request: Request) -> str | None:
    text = request.text("line")
    found = LINE.fullmatch(text or "")
    if text is not None and not found:
        raise NotThere(f"“{text[:40]}” is no line: it is given as code-12, post-12 or pre-12.")
    return f"{found[1] or 'code'}-{int(found[2])}" if found else None


PAGES = (
    Page(
        "/compile",
        "compiles/list.html",
        "Compile",
        CompilesPage,
        compiles_page,
        ("status", "text", "log", "sort", "order", "offset", "stacks"),
    ),
    Page(
        "/compile/{compile_id}",
        "compiles/page.html",
        "Compile",
        CompilePage,
        compile_page,
        ("log", "attempt", "stage", "record"),
    ),
    Page(
        "/compile/{compile_id}/provenance",
        "compiles/provenance.html",
        "Compile",
        ProvenancePage,
        provenance_page,
        ("log", "attempt", "graph", "line"),
    ),
)
