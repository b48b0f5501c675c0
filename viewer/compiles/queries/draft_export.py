"""What draft export reports: why a program was not soundly exported, with where every expression came from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.records.queries.artifacts import header_json
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

KINDS = {
    "propagate_real_tensors_provenance": "data-dependent error",
    "propagate_real_tensors": "data-dependent error",
    "guard_on_data_dependent_error": "data-dependent guard",
    "missing_fake_kernel": "missing fake kernel",
    "mismatched_fake_kernel": "mismatched fake kernel",
    "guard_added": "guard added",
}
"""Event -> kind of failure."""
_MADE = "expression_created"
_MOST_NODES = 60
_DEEPEST = 12
_TORCH = ("/torch/", "\\torch\\")
_EVENTS = """
    SELECT log, event, subject, result, reason, stack, count(*), min(record), arg_min(node, record)
    FROM export_events WHERE list_contains($events, event) AND ($log IS NULL OR log = $log)
    GROUP BY log, event, subject, result, reason, stack ORDER BY min(record)
"""


@dataclass(frozen=True)
class ExpressionNode:
    """An expression over symbols, and what it was made of."""

    text: str
    method: str | None
    source: SourceLine | None
    record: int | None
    arguments: list[ExpressionNode] = field(default_factory=list)


@dataclass(frozen=True)
class ExportFailure:
    log: int
    record: int
    kind: str
    subject: str | None
    """An expression, or an operator."""
    result: str | None
    """What it was taken to be, from the example's values."""
    reason: str | None
    occurrences: int
    stack: list[SourceLine]
    """Of the program, outermost first."""
    locals: dict[str, str]
    symbols: dict[str, str]
    """Symbol -> where it comes from."""
    tree: ExpressionNode | None


@dataclass(frozen=True)
class ExportedProgram:
    log: int
    record: int
    payload_bytes: int | None


@dataclass(frozen=True)
class UnbackedSymbol:
    log: int
    record: int
    symbol: str | None
    value_range: str | None
    source: SourceLine | None


@dataclass(frozen=True)
class DraftExport:
    counts: dict[str, int]
    """Kind of failure -> distinct ones."""
    rows: list[ExportFailure]
    unbacked: list[UnbackedSymbol]
    programs: list[ExportedProgram]
    total: int
    offset: int
    limit: int


def draft_export(trace: Trace, kind: str | None = None, offset: int = 0, limit: int = 40) -> DraftExport:
    """A page of the distinct failures: errors, then guards, in the order in which they were met."""
    found = [
        row
        for row in sql.rows_named(trace, _EVENTS, {"events": list(KINDS), "log": None})
        # A guard that asserts at run time is the other side of an error above it.
        if not (row[1] == "guard_added" and row[4] == "runtime_assert")
    ]
    found = sorted(_without_echoes(found), key=lambda row: row[1] == "guard_added")
    counts: dict[str, int] = {}
    for row in found:
        counts[KINDS[row[1]]] = counts.get(KINDS[row[1]], 0) + 1
    chosen = [row for row in found if kind is None or KINDS[row[1]] == kind]
    shown = chosen[offset : offset + limit]
    headers = trace.headers([row[7] for row in shown])
    trees = _Trees(trace, {row[0] for row in shown})
    rows = [_failure(row, header_json(headers.get(row[7], b"")).get(row[1]), trees) for row in shown]
    return DraftExport(counts, rows, _unbacked(trace), _programs(trace), len(chosen), offset, limit)


def _without_echoes(found: list[sql.Row]) -> list[sql.Row]:
    """Without records that tell less of what another tells too: an error is written once with and once without its
    provenance."""
    told = {(row[0], row[2], row[3]) for row in found if row[1] == "propagate_real_tensors_provenance"}
    return [row for row in found if row[1] != "propagate_real_tensors" or (row[0], row[2], row[3]) not in told]


def _failure(row: sql.Row, value: Any, trees: _Trees) -> ExportFailure:
    log, event, subject, result, reason, stack, count, record, node = row
    value = value if isinstance(value, dict) else {}
    frame = value.get("frame_locals") if isinstance(value.get("frame_locals"), dict) else {}
    return ExportFailure(
        log=log,
        record=record,
        kind=KINDS[event],
        subject=subject,
        result=result,
        reason=reason,
        occurrences=count,
        stack=_own(_frames(stack)),
        locals=_texts(frame.get("locals")),
        symbols={**_texts(frame.get("symbols")), **_texts(value.get("symbol_to_sources"))},
        tree=trees.tree(log, node, record) if node is not None else None,
    )


def _frames(stack: str | None) -> list[SourceLine]:
    return [SourceLine(**frame) for frame in sql.json_value(stack) or []]


def _own(frames: list[SourceLine]) -> list[SourceLine]:
    """Those of the program, where there are any: what PyTorch does below them leads nobody to a line to change."""
    return [frame for frame in frames if not any(part in frame.file for part in _TORCH)] or frames


def _innermost(stack: str | None) -> SourceLine | None:
    own = _own(_frames(stack))
    return own[-1] if own else None


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: _text(item) for name, item in value.items() if item is not None}


def _text(item: Any) -> str:
    if isinstance(item, list):
        return ", ".join(_text(one) for one in item)
    return str(item)


class _Trees:
    """Expressions of a log by the number of the object that PyTorch gives; a number comes again for another object."""

    def __init__(self, trace: Trace, logs: Iterable[int]) -> None:
        self.trace = trace
        self.nodes: defaultdict[tuple[int, int], list[sql.Row]] = defaultdict(list)
        statement = (
            "SELECT log, node, record, event, subject, result, stack FROM export_events WHERE node IS NOT NULL"
            f" AND event IN ('{_MADE}', 'create_unbacked_symbol') AND log IN (SELECT unnest($1)) ORDER BY record"
        )
        for row in sql.rows(trace, statement, [list(logs)]):
            self.nodes[row[0], row[1]].append(row[2:])

    def tree(self, log: int, node: int, before: int) -> ExpressionNode | None:
        self.left = _MOST_NODES
        return self._node(log, node, before, 0)

    def _node(self, log: int, node: int, before: int, depth: int) -> ExpressionNode | None:
        made = next((row for row in reversed(self.nodes.get((log, node), [])) if row[0] < before), None)
        if made is None or depth > _DEEPEST or self.left <= 0:
            return None
        self.left -= 1
        record, event, subject, method, stack = made
        if event != _MADE:
            return ExpressionNode(subject or "", None, _innermost(stack), record)
        value = header_json(self.trace.header(record)).get(_MADE)
        value = value if isinstance(value, dict) else {}
        texts, ids = value.get("arguments"), value.get("argument_ids")
        numbers = [one for one in ids if isinstance(one, int)] if isinstance(ids, list) else []
        below = [self._node(log, number, record, depth + 1) for number in numbers]
        named = {one.text: one for one in below if one is not None}
        arguments = [
            named.pop(str(text), ExpressionNode(str(text), None, None, None))
            for text in (texts if isinstance(texts, list) else [])
        ]
        return ExpressionNode(subject or "", method, _innermost(stack), record, [*arguments, *named.values()])


def _unbacked(trace: Trace) -> list[UnbackedSymbol]:
    found = sql.rows(
        trace,
        "SELECT log, min(record), subject, result, stack FROM export_events WHERE event = 'create_unbacked_symbol'"
        " GROUP BY log, subject, result, stack ORDER BY 2 LIMIT 200",
    )
    return [UnbackedSymbol(*[*row[:4], _innermost(row[4])]) for row in found]


def _programs(trace: Trace) -> list[ExportedProgram]:
    found = sql.rows(
        trace,
        "SELECT log, record, payload_bytes FROM records WHERE event = 'exported_program' ORDER BY record LIMIT 50",
    )
    return [ExportedProgram(*row) for row in found]
