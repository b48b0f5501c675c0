"""Queries vLLM's records of its piecewise compilation: settings, size ranges, submodules and passes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepscope.viewer.ingest.bounds import whole_number
from stepscope.viewer.ingest.lenient_json import loads, text
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.text_diff import SideBySide, side_by_side

_CONFIG, _EVENT, _START = "vllm_compilation_config", "vllm_compile_event", "vllm_piecewise_compile_start"
_SPLIT, _PATTERNS = "vllm_piecewise_split_graph", "vllm_patterns."
_BEFORE = "before_post_grad_graph"
_PASS = re.compile(r"vllm_post_grad\.(\d+)\.(.+)$")
_MOST_STARTS = 5000
_MOST_ARTIFACTS = 500
_RECORDS = """
    SELECT record, log, name, compile_id, payload_bytes FROM records
    WHERE starts_with(name, 'vllm_') AND event IN ('artifact', 'graph_dump') ORDER BY log, record
"""
_COUNTS = """
    WITH starts AS (SELECT record, log FROM records WHERE list_contains($boundaries, record)),
         held AS (
        SELECT record, log, name FROM records
        WHERE payload_bytes IS NOT NULL AND event <> 'chromium_event' AND log IN (SELECT DISTINCT log FROM starts)
    )
    SELECT s.record, count(*) FILTER (NOT starts_with(coalesce(h.name, ''), 'vllm_post_grad.')) - 1 AS artifacts,
           count(*) FILTER (starts_with(coalesce(h.name, ''), 'vllm_post_grad.')) AS passes
    FROM held h ASOF JOIN starts s ON h.log = s.log AND h.record >= s.record GROUP BY s.record
"""
_ARTIFACTS = f"""
    SELECT record, event, name, payload_bytes FROM records
    WHERE log = $log AND record > $start AND record < $stop AND payload_bytes IS NOT NULL AND event <> 'chromium_event'
    ORDER BY record LIMIT {_MOST_ARTIFACTS}
"""


Counts = Mapping[int, dict[str, int]]
"""The numbers of artifacts and passes in the compile of a submodule, by its first record."""


class _Told(NamedTuple):
    """A record that vLLM wrote."""

    record: int
    log: int
    name: str
    compile_id: str | None
    payload_bytes: int | None


class _Artifact(NamedTuple):
    record: int
    event: str
    name: str | None
    payload_bytes: int | None


@dataclass(frozen=True)
class VllmArtifact:
    record: int
    name: str
    payload_bytes: int | None


@dataclass(frozen=True)
class VllmSubmodule:
    """A submodule compiled for one range of sizes."""

    record: int
    name: str
    index: int | None
    of: int | None
    is_cudagraph_size: bool | None
    artifacts: int
    passes: int


@dataclass(frozen=True)
class VllmRange:
    start: int | None
    end: int | None
    is_single_size: bool
    submodules: list[VllmSubmodule]


@dataclass(frozen=True)
class VllmCall:
    """A compiled model, or part of one: the records that follow a record of its settings."""

    log: int
    record: int
    compile_id: str | None
    settings: dict[str, Any]
    outcome: str | None
    """Event type that vLLM logged for it, for example that it came from a cache."""
    split_graph: int | None
    graphs: list[VllmArtifact]
    """Graphs of the submodules before they were compiled."""
    patterns: list[VllmArtifact]
    ranges: list[VllmRange]


@dataclass(frozen=True)
class VllmPass:
    record: int
    index: int
    name: str
    before: int | None
    """Record of the graph before the pass; None if there is none."""
    changed: bool | None


@dataclass(frozen=True)
class VllmChosen:
    """The selected submodule."""

    log: int
    submodule: VllmSubmodule
    range: VllmRange
    artifacts: list[VllmArtifact]
    passes: list[VllmPass]
    shown: VllmPass | None
    diff: SideBySide | None


@dataclass(frozen=True)
class Vllm:
    calls: list[VllmCall]
    chosen: VllmChosen | None


def vllm(trace: Trace, start: int | None = None, pass_record: int | None = None) -> Vllm | None:
    """Return all calls and the submodule that starts at record `start`, else the first; None without vLLM records."""
    rows = sql.records(_Told, trace, _RECORDS)
    if not rows:
        return None
    read = [row.record for row in rows if row.name in (_CONFIG, _EVENT, _START)][:_MOST_STARTS]
    values = {record: _object(payload) for record, payload in trace.payloads(read).items()}
    boundaries = [row.record for row in rows if row.name in (_CONFIG, _START)]
    counts = {row.pop("record"): row for row in sql.named(trace, _COUNTS, {"boundaries": boundaries})}
    calls = _calls(rows, values, counts)
    places = [(call, of, one) for call in calls for of in call.ranges for one in of.submodules]
    place = next((found for found in places if start is None or found[2].record == start), None)
    if place is None:
        return Vllm(calls, None)
    call, of, one = place
    stop = min((record for record in boundaries if record > one.record), default=1 << 62)
    return Vllm(calls, _chosen(trace, call.log, of, one, stop, pass_record))


def _object(payload: bytes) -> dict[str, Any]:
    try:
        value = loads(payload)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _calls(rows: list[_Told], values: Mapping[int, dict[str, Any]], counts: Counts) -> list[VllmCall]:
    """Split the records into calls; a record of settings, or an event about the next settings, starts a new one."""
    groups: list[list[_Told]] = []
    has_settings = False
    for row in rows:
        if not groups or groups[-1][0].log != row.log or (has_settings and row.name in (_CONFIG, _EVENT)):
            groups.append([])
            has_settings = False
        groups[-1].append(row)
        has_settings |= row.name == _CONFIG
    return [_call(group, values, counts) for group in groups]


def _call(group: list[_Told], values: Mapping[int, dict[str, Any]], counts: Counts) -> VllmCall:
    named: defaultdict[str, list[_Told]] = defaultdict(list)
    for row in group:
        named[row.name].append(row)
    config = named[_CONFIG][0] if named[_CONFIG] else None
    outcome = next((text(values.get(row.record, {}).get("type")) for row in named[_EVENT]), None)
    graphs = [row for row in group if row.name.startswith(("vllm_subgraph_", "vllm_submod_"))]
    patterns = [row for row in group if row.name.startswith(_PATTERNS)]
    return VllmCall(
        log=group[0].log,
        record=(config or group[0]).record,
        compile_id=next((row.compile_id for row in group if row.compile_id), None),
        settings=values.get(config.record, {}) if config else {},
        outcome=outcome,
        split_graph=named[_SPLIT][0].record if named[_SPLIT] else None,
        graphs=[VllmArtifact(row.record, row.name, row.payload_bytes) for row in graphs],
        patterns=[VllmArtifact(row.record, row.name, row.payload_bytes) for row in patterns],
        ranges=_ranges(named[_START], values, counts),
    )


def _ranges(starts: list[_Told], values: Mapping[int, dict[str, Any]], counts: Counts) -> list[VllmRange]:
    found: dict[tuple[int | None, int | None, bool], list[VllmSubmodule]] = {}
    for start in starts:
        value = values.get(start.record, {})
        index, is_size = whole_number(value.get("piecewise_index")), value.get("is_cudagraph_capture_size")
        low, high = whole_number(value.get("compile_range_start")), whole_number(value.get("compile_range_end"))
        found.setdefault((low, high, value.get("is_single_size") is True), []).append(
            VllmSubmodule(
                record=start.record,
                name=text(value.get("submod_name")) or (f"subgraph {index}" if index is not None else "subgraph"),
                index=index,
                of=whole_number(value.get("total_piecewise_compiles")),
                is_cudagraph_size=is_size if isinstance(is_size, bool) else None,
                **counts.get(start.record, {"artifacts": 0, "passes": 0}),
            )
        )
    return [VllmRange(*key, submodules) for key, submodules in found.items()]


def _chosen(
    trace: Trace, log: int, of: VllmRange, one: VllmSubmodule, stop: int, pass_record: int | None
) -> VllmChosen:
    rows = sql.records(_Artifact, trace, _ARTIFACTS, {"log": log, "start": one.record, "stop": stop})
    graphs = [row for row in rows if row.name == _BEFORE or _PASS.match(row.name or "")]
    texts = {
        record: payload.decode("utf-8", "replace")
        for record, payload in trace.payloads([graph.record for graph in graphs]).items()
    }
    passes: list[VllmPass] = []
    before: int | None = None
    for graph in graphs:
        record, match = graph.record, _PASS.match(graph.name or "")
        if match:
            changed = None if before is None else texts.get(before) != texts.get(record)
            passes.append(VllmPass(record, int(match[1][:9]), match[2], before, changed))
        before = record
    shown = next((found for found in passes if found.record == pass_record), None)
    if shown is None:
        shown = next((found for found in passes if found.changed), None)
    diff = None
    if shown is not None and shown.before is not None:
        diff = side_by_side(texts.get(shown.before, ""), texts.get(shown.record, ""))
    others = [
        VllmArtifact(row.record, row.name or row.event, row.payload_bytes)
        for row in rows
        if not _PASS.match(row.name or "")
    ]
    return VllmChosen(log, one, of, others, passes, shown, diff)
