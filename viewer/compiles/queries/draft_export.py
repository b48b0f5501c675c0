"""Queries draft export: why the export of a program is not sound, and where each expression came from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
"""Kind of failure of each event."""
_MADE = "expression_created"
_MOST_NODES = 60
_DEEPEST = 12
_TORCH = ("/torch/", "\\torch\\")
_EVENTS = """
    SELECT log, event, subject, result, reason, stack, count(*) AS occurrences, min(record) AS record,
           arg_min(node, record) AS node
    FROM export_events WHERE list_contains($events, event) AND ($log IS NULL OR log = $log)
    GROUP BY log, event, subject, result, reason, stack ORDER BY min(record)
"""


class _Failed(NamedTuple):
    """A distinct failure and how often it occurred."""

    log: int
    event: str
    subject: str | None
    result: str | None
    reason: str | None
    stack: str | None
    occurrences: int
    record: int
    node: int | None


class _Expression(NamedTuple):
    """The creation of an expression or symbol; `node` is PyTorch's id of the object."""

    log: int
    node: int
    record: int
    event: str
    subject: str | None
    result: str | None
    stack: str | None


@dataclass(frozen=True)
class ExpressionNode:
    """An expression over symbols, and its arguments."""

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
    """Expression or operator that failed."""
    result: str | None
    """Value that was assumed for it, from the example inputs."""
    reason: str | None
    occurrences: int
    stack: list[SourceLine]
    """Program frames, outermost first."""
    locals: dict[str, str]
    symbols: dict[str, str]
    """Source of each symbol."""
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
    """Number of distinct failures of each kind."""
    rows: list[ExportFailure]
    unbacked: list[UnbackedSymbol]
    programs: list[ExportedProgram]
    total: int
    offset: int
    limit: int


def draft_export(trace: Trace, kind: str | None = None, offset: int = 0, limit: int = 40) -> DraftExport:
    """Return a page of the distinct failures in log order, errors before guards."""
    found = [
        row
        for row in sql.records(_Failed, trace, _EVENTS, {"events": list(KINDS), "log": None})
        # A guard that asserts at run time repeats an error that another record reports.
        if not (row.event == "guard_added" and row.reason == "runtime_assert")
    ]
    found = sorted(_without_echoes(found), key=lambda row: row.event == "guard_added")
    counts: dict[str, int] = {}
    for row in found:
        counts[KINDS[row.event]] = counts.get(KINDS[row.event], 0) + 1
    chosen = [row for row in found if kind is None or KINDS[row.event] == kind]
    shown = chosen[offset : offset + limit]
    headers = trace.headers([row.record for row in shown])
    trees = _Trees(trace, {row.log for row in shown})
    rows = [_failure(row, header_json(headers.get(row.record, b"")).get(row.event), trees) for row in shown]
    return DraftExport(counts, rows, _unbacked(trace), _programs(trace), len(chosen), offset, limit)


def _without_echoes(found: list[_Failed]) -> list[_Failed]:
    """Drop the errors without provenance that also have a record with provenance."""
    told = {(row.log, row.subject, row.result) for row in found if row.event == "propagate_real_tensors_provenance"}
    return [
        row for row in found if row.event != "propagate_real_tensors" or (row.log, row.subject, row.result) not in told
    ]


def _failure(row: _Failed, value: Any, trees: _Trees) -> ExportFailure:
    value = value if isinstance(value, dict) else {}
    frame = value.get("frame_locals") if isinstance(value.get("frame_locals"), dict) else {}
    kept = ("log", "record", "subject", "result", "reason", "occurrences")
    return ExportFailure(
        **{name: getattr(row, name) for name in kept},
        kind=KINDS[row.event],
        stack=_own(_frames(row.stack)),
        locals=_texts(frame.get("locals")),
        symbols={**_texts(frame.get("symbols")), **_texts(value.get("symbol_to_sources"))},
        tree=trees.tree(row.log, row.node, row.record) if row.node is not None else None,
    )


def _frames(stack: str | None) -> list[SourceLine]:
    return [SourceLine(**frame) for frame in sql.json_value(stack) or []]


def _own(frames: list[SourceLine]) -> list[SourceLine]:
    """Return the program's frames without those of PyTorch, or all frames if every one is PyTorch's."""
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
    """Expressions by log and PyTorch's object id; PyTorch may reuse an id for a later object."""

    def __init__(self, trace: Trace, logs: Iterable[int]) -> None:
        self.trace = trace
        self.nodes: defaultdict[tuple[int, int], list[_Expression]] = defaultdict(list)
        statement = (
            "SELECT log, node, record, event, subject, result, stack FROM export_events WHERE node IS NOT NULL"
            f" AND event IN ('{_MADE}', 'create_unbacked_symbol') AND log IN (SELECT unnest($1)) ORDER BY record"
        )
        for made in sql.records(_Expression, trace, statement, [list(logs)]):
            self.nodes[made.log, made.node].append(made)

    def tree(self, log: int, node: int, before: int) -> ExpressionNode | None:
        self.left = _MOST_NODES
        return self._node(log, node, before, 0)

    def _node(self, log: int, node: int, before: int, depth: int) -> ExpressionNode | None:
        made = next((row for row in reversed(self.nodes.get((log, node), [])) if row.record < before), None)
        if made is None or depth > _DEEPEST or self.left <= 0:
            return None
        self.left -= 1
        text, source = made.subject or "", _innermost(made.stack)
        if made.event != _MADE:
            return ExpressionNode(text, None, source, made.record)
        value = header_json(self.trace.header(made.record)).get(_MADE)
        value = value if isinstance(value, dict) else {}
        texts, ids = value.get("arguments"), value.get("argument_ids")
        numbers = [one for one in ids if isinstance(one, int)] if isinstance(ids, list) else []
        below = [self._node(log, number, made.record, depth + 1) for number in numbers]
        named = {one.text: one for one in below if one is not None}
        arguments = [
            named.pop(str(one), ExpressionNode(str(one), None, None, None))
            for one in (texts if isinstance(texts, list) else [])
        ]
        return ExpressionNode(text, made.result, source, made.record, [*arguments, *named.values()])


def _unbacked(trace: Trace) -> list[UnbackedSymbol]:
    found = sql.named(
        trace,
        "SELECT log, min(record) AS record, subject AS symbol, result AS value_range, stack FROM export_events"
        " WHERE event = 'create_unbacked_symbol' GROUP BY log, subject, result, stack ORDER BY min(record) LIMIT 200",
    )
    return [UnbackedSymbol(source=_innermost(row.pop("stack")), **row) for row in found]


def _programs(trace: Trace) -> list[ExportedProgram]:
    return sql.records(
        ExportedProgram,
        trace,
        "SELECT log, record, payload_bytes FROM records WHERE event = 'exported_program' ORDER BY record LIMIT 50",
    )
