"""Queries CUDA graphs: the compiles that skipped them and why, and the compiles that were captured repeatedly."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.torch_trace.compile_facts import (
    CUDAGRAPHS,
    METRICS_EVENTS,
    SKIP_REASON,
    phase_of_metrics,
)
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.tracebacks import traceback_frames

_NODES = (
    re.compile(r"incompatible op\w* (?P<node>[\w.:]+)"),
    re.compile(r"cpu device \((?P<node>[^)]+)\)"),
)
_FOUND_FROM = re.compile(r"\.?\s*Found from\s*:?\s*")
_RECORDED = "CUDAGraphNode.record"
_MOST_COMPILES = 12
_POSSIBLE = "number BETWEEN 0 AND 1e15"
"""Of a time in microseconds, whose nanoseconds must fit into 64 bits."""
Place = tuple[str, str | None, int | None]
_SKIPS = f"""
    SELECT m.text, r.log, r.compile_id, r.record, r.event, c.frame
    FROM metrics m JOIN records r ON r.record = m.record
    LEFT JOIN compiles c ON c.log = r.log AND c.compile_id = r.compile_id
    WHERE m.name = '{SKIP_REASON}' AND m.text IS NOT NULL ORDER BY r.record
"""
_RECORDINGS = f"""
    SELECT s.log, s.compile_id, max(c.frame), count(*), sum(s.duration_ns)::BIGINT, max(s.duration_ns)
    FROM spans s LEFT JOIN compiles c ON c.log = s.log AND c.compile_id = s.compile_id
    WHERE s.name = '{_RECORDED}' GROUP BY s.log, s.compile_id ORDER BY 4 DESC, 5 DESC LIMIT 500
"""


@dataclass(frozen=True)
class SkippedCompile:
    log: int
    compile_id: str | None
    frame: str | None
    phase: str
    record: int


@dataclass(frozen=True)
class CudaGraphSkip:
    """One reason why CUDA graphs were skipped, at one line of the program."""

    reason: str
    node: str | None
    """Operator or CPU input that prevents the capture; None if the reason names none."""
    source: SourceLine | None
    text: str
    compiles: list[SkippedCompile]
    """First compiles with this reason, at most 12."""
    count: int


@dataclass(frozen=True)
class CudaGraphRecordings:
    """The CUDA graph captures of one compile; more than one means that it was captured again."""

    log: int
    compile_id: str | None
    frame: str | None
    recordings: int
    duration_ns: int
    longest_ns: int


@dataclass(frozen=True)
class CudaGraphs:
    skips: list[CudaGraphSkip]
    recordings: list[CudaGraphRecordings]
    metrics: int
    """Number of records of compilation metrics."""
    asked_for: int | None
    """Number of these records with `triton.cudagraphs` enabled; None if none contains the setting."""
    says_skips: int
    """Number of these records that have the field for the skip reason."""
    cudagraphify_ns: int | None
    """Capture time from the metrics."""
    cannot_say: list[str]
    """Sentences about what this log cannot show."""


def cuda_graphs(trace: Trace) -> CudaGraphs:
    asked, told, captured = (
        sql.row(trace, f"SELECT count(*), sum(number) FILTER ({_POSSIBLE}) FROM metrics WHERE name = '{name}'")
        or (0, None)
        for name in (CUDAGRAPHS, SKIP_REASON, "runtime_cudagraphify_time_us")
    )
    events = ", ".join(f"'{event}'" for event in METRICS_EVENTS)
    metrics = sql.number(trace, f"SELECT count(*) FROM records WHERE event IN ({events})")
    recordings = [CudaGraphRecordings(*row) for row in sql.rows(trace, _RECORDINGS)]
    return CudaGraphs(
        skips=_skips(sql.rows(trace, _SKIPS)),
        recordings=recordings,
        metrics=metrics,
        asked_for=int(asked[1]) if asked[0] else None,
        says_skips=told[0],
        cudagraphify_ns=round(captured[1] * 1000) if captured[1] is not None else None,
        cannot_say=_cannot_say(metrics, told[0], asked[0], bool(recordings)),
    )


def _cannot_say(metrics: int, told: int, asked: int, recorded: bool) -> list[str]:
    said = []
    if not metrics:
        said.append("This log has no compilation metrics, which say why a CUDA graph was skipped.")
    elif not told:
        said.append(
            "The metrics of this version of PyTorch do not say why CUDA graphs were skipped:"
            f" they have no field {SKIP_REASON}."
        )
    if metrics and not asked:
        said.append(
            "The metrics do not contain the setting triton.cudagraphs, which says whether CUDA graphs were enabled."
        )
    if not recorded:
        said.append(
            f"This log has no span {_RECORDED}: either no CUDA graph was captured, or this version of PyTorch does not"
            " record captures."
        )
    said.append(
        "PyTorch writes only to its own log, TORCH_LOGS=cudagraphs, why a graph was captured again, how often it was"
        " replayed, and what was skipped at run time because an input is mutated."
    )
    return said


def _skips(rows: list[sql.Row]) -> list[CudaGraphSkip]:
    skips: dict[Place, CudaGraphSkip] = {}
    for text, log, compile_id, record, event, frame in rows:
        reason, node, source = _parsed(text)
        key = (reason, source.file if source else None, source.line if source else None)
        skip = skips.setdefault(key, CudaGraphSkip(reason, node, source, text, [], 0))
        if skip.count < _MOST_COMPILES:
            skip.compiles.append(SkippedCompile(log, compile_id, frame, phase_of_metrics(event), record))
        skips[key] = replace(skip, count=skip.count + 1)
    return sorted(skips.values(), key=lambda skip: -skip.count)


def _parsed(text: str) -> tuple[str, str | None, SourceLine | None]:
    """Return the reason before the stack, the node it names, and the innermost line of the stack."""
    parts = _FOUND_FROM.split(text, maxsplit=1)
    reason = parts[0].strip()
    node = next((found["node"] for found in (pattern.search(reason) for pattern in _NODES) if found), None)
    frames = traceback_frames(parts[1]) if len(parts) > 1 else []
    return reason, node, frames[-1] if frames else None
