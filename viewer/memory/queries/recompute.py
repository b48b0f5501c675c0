"""Queries where the memory figures updated by a reordering pass differ from a full recomputation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from stepscope.tracer.schema.memory import RecomputeMismatch
from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.ingest.decode import decode
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.memory.rows import ScheduledBufferRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ROWS = """
    SELECT r.recompute, r.log, l.rank, r.time_unix_ns, r.pass_name, r.swap, r.candidate, r.members AS "group",
           r.reasons, r.reason_snodes, r.peak_before_bytes, r.peak_after_bytes, r.allowed_peak_bytes, r.is_explained,
           r.peak_snodes, r.peak_snode, r.snodes, r.found_by, r.swapped, r.compile_id, r.graph, r.subgraph
    FROM recompute_mismatches r LEFT JOIN logs l ON l.log = r.log
"""
_LISTS = ("group", "reasons", "reason_snodes", "peak_snodes", "swapped")
_MOST_NAMES = 6


@dataclass(frozen=True)
class SwappedNodeRow:
    """A scheduler node that a reordering pass moved, or one that it moved past."""

    name: str
    node_kind: str
    kernels: list[str]
    operators: list[str]
    fx_nodes: list[str]
    reads: list[str]
    writes: list[str]
    words: str
    """Sentence that says what the node computes, reads and writes."""


@dataclass(frozen=True)
class LastUseRow:
    """A buffer whose last use a swap moved to another node."""

    buffer: str
    before: str
    """Last node to use the buffer before the swap."""
    after: str
    """Last node to use it after the swap, as updated by the pass."""
    recomputed: str | None
    """Last node to use it after the swap, as recomputed; None if the buffer outlives the graph or is unknown."""
    program: str | None
    """Name in the user's program; None if it has none or it is unknown."""


@dataclass(frozen=True)
class RecomputeRow:
    recompute: int
    log: int
    rank: int | None
    time_unix_ns: int | None
    pass_name: str
    swap: int
    candidate: str
    group: list[str]
    reasons: list[str]
    reason_snodes: list[str]
    peak_before_bytes: int
    peak_after_bytes: int
    allowed_peak_bytes: int
    is_explained: bool
    peak_snodes: list[int]
    """Indices of the nodes at the recomputed peak, counted from 0."""
    peak_snode: str | None
    """Name of the first node at the peak."""
    snodes: int
    """Number of nodes."""
    found_by: str
    swapped: list[SwappedNodeRow]
    """Candidate, then the nodes of the group; empty if the log does not describe them."""
    compile_id: str | None
    graph: int | None
    """None if the compile produced no graph that could be recorded."""
    subgraph: str | None
    """Subgraph whose nodes the pass moved; None for the graph itself."""


@dataclass(frozen=True)
class RecomputeDetail:
    """One swap: all nodes in the order after it, with the figures updated by the pass and the recomputed ones."""

    row: RecomputeRow
    snode: list[str]
    carried_after_alloc_bytes: list[int]
    carried_after_free_bytes: list[int]
    recomputed_after_alloc_bytes: list[int]
    recomputed_after_free_bytes: list[int]
    before_after_alloc_bytes: list[int | None]
    before_after_free_bytes: list[int | None]
    carried_alloc_bytes: list[int]
    """Bytes that each node allocates, as updated by the pass; empty if unknown."""
    carried_free_bytes: list[int]
    recomputed_alloc_bytes: list[int]
    recomputed_free_bytes: list[int]
    last_uses: list[LastUseRow]
    swapped_snodes: list[int]
    """Indices of the candidate and the nodes of its group after the swap."""
    differs: list[int]
    """Indices of nodes whose updated and recomputed figures differ."""
    buffers: list[ScheduledBufferRow]
    """Buffers, largest first."""
    at_peak: list[ScheduledBufferRow]
    """Buffers alive at the first node of the recomputed peak, largest first."""


def recompute_mismatches(trace: Trace) -> list[RecomputeRow]:
    """Return all recompute mismatches in the order in which they were found."""
    return _rows(trace, f"{_ROWS} ORDER BY r.recompute")


def recompute_detail(trace: Trace, recompute: int) -> RecomputeDetail | None:
    """Return one recompute mismatch, or None if there is none with that id."""
    row = next(iter(_rows(trace, f"{_ROWS} WHERE r.recompute = ?", [recompute])), None)
    if row is None:
        return None
    record = sql.number(trace, "SELECT record FROM recompute_mismatches WHERE recompute = ?", [recompute])
    value = decode(RecomputeMismatch, loads(trace.whole_payload(record)))
    names = [f.name for f in fields(value.buffers)]
    figures = [f.name for f in fields(RecomputeDetail) if f.name.endswith(("alloc_bytes", "free_bytes"))]
    named_in = row.graph if row.subgraph is None else None
    buffers = [
        ScheduledBufferRow(*[*b, name_in_program(trace, named_in, b[0])])
        for b in zip(*(getattr(value.buffers, n) for n in names), strict=True)
    ]
    buffers.sort(key=lambda buffer: -buffer.alloc_bytes)
    peak = row.peak_snodes[0] if row.peak_snodes else None
    return RecomputeDetail(
        row=row,
        snode=value.snode,
        **{name: getattr(value, name) for name in figures},
        last_uses=_last_uses(trace, named_in, value),
        swapped_snodes=[i for i, name in enumerate(value.snode) if name in (value.candidate, *value.group)],
        differs=_differs(value),
        buffers=buffers,
        at_peak=[b for b in buffers if peak is not None and _is_alive(b, peak)],
    )


def _differs(value: RecomputeMismatch) -> list[int]:
    """Return the indices of nodes for which an updated figure differs from the recomputed one."""
    pairs = [
        (value.carried_after_alloc_bytes, value.recomputed_after_alloc_bytes),
        (value.carried_after_free_bytes, value.recomputed_after_free_bytes),
        (value.carried_alloc_bytes, value.recomputed_alloc_bytes),
        (value.carried_free_bytes, value.recomputed_free_bytes),
    ]
    known = [(carried, recomputed) for carried, recomputed in pairs if carried and recomputed]
    return [i for i in range(len(value.snode)) if any(carried[i] != recomputed[i] for carried, recomputed in known)]


def _last_uses(trace: Trace, graph: int | None, value: RecomputeMismatch) -> list[LastUseRow]:
    names, nodes = value.buffers, range(len(value.snode))
    last = {name: value.snode[i] for name, i in zip(names.name, names.last_snode, strict=True) if i in nodes}
    columns = zip(value.last_use_buffer, value.last_use_before, value.last_use_after, strict=True)
    return [
        LastUseRow(buffer, before, after, last.get(buffer), name_in_program(trace, graph, buffer))
        for buffer, before, after in columns
    ]


def _is_alive(buffer: ScheduledBufferRow, node: int) -> bool:
    return buffer.first_snode <= node and (buffer.last_snode == -1 or buffer.last_snode >= node)


def _rows(trace: Trace, statement: str, parameters: Sequence[int] = ()) -> list[RecomputeRow]:
    found = sql.named(trace, statement, parameters, json=_LISTS)
    for row in found:
        row["swapped"] = [SwappedNodeRow(**node, words=_words(node)) for node in row["swapped"]]
    return [RecomputeRow(**row) for row in found]


def _words(node: Mapping[str, Any]) -> str:
    parts = [
        f"{verb} {_names(node[column])}"
        for verb, column in (("computes", "operators"), ("calls", "kernels"), ("reads", "reads"), ("writes", "writes"))
        if node[column]
    ]
    what = " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    return f"{node['name']} {what or 'is a ' + node['node_kind']}."


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = list(names[:_MOST_NAMES]) + ([f"{more} more"] if more > 0 else [])
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)
