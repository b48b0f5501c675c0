"""Says what the peak of a run consists of: parameters, optimizer state, inputs, gradients, saved tensors and so on."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.graphs.rows import ProgramName
from stepscope.viewer.memory.queries.alive import alive_in_call
from stepscope.viewer.memory.queries.peak_rows import PEAK_MEANINGS, PeakKind, PeakPart, PeakParts, RecomputedRegion
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.memory.rows import AliveRow, RunPeak
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_GIVEN: dict[str | None, PeakKind] = {
    "parameter": "parameters", "buffer": "module buffers", "input": "inputs", "gradient": "gradients",
    "saved": "saved for the backward pass",
}  # fmt: skip
_STATE = re.compile(r"(?:\b|_)state(?:_list_dict_keys_|\[list\(dict\.keys\()")
"""How Dynamo names tensors in the attribute `state` of an optimizer, a dictionary whose keys are the parameters."""
_SUMS = """
    SELECT live_bytes, made_bytes, saved_bytes, kept_bytes FROM live_bytes
    WHERE log = $log AND device = $device AND ns = $ns
"""
_ALIVE = """
    SELECT l.graph, s.name, v.made, v.met_by_backward, v.storage_bytes
    FROM survivors v JOIN layouts l ON l.layout = v.layout
    JOIN layout_storages s ON s.layout = v.layout AND s.storage = v.storage
    WHERE v.log = $log AND v.device = $device AND v.born_ns <= $ns AND (v.died_ns IS NULL OR v.died_ns > $ns)
"""
_RECOMPUTED = "SELECT recomputed FROM sites WHERE graph = ? AND recomputed <> '{}'"


class _Alive(NamedTuple):
    graph: int
    name: str
    made: bool
    met_by_backward: bool
    storage_bytes: int


def peak_parts(trace: Trace, log: int) -> list[PeakParts]:
    """Return the parts of the peak of each device of a log, the highest peak first."""
    return [parts_of(trace, peak) for peak in run_peaks(trace) if peak.log == log and peak.live_bytes]


def parts_of(trace: Trace, peak: RunPeak) -> PeakParts:
    """Return what a peak consists of. Memory that no compiled call uses is no part of it."""
    at = {"log": peak.log, "device": peak.device, "ns": peak.ns}
    ((live, made, saved, kept),) = sql.rows(trace, _SUMS, at)
    sizes: Counter[PeakKind] = Counter()
    given = results = 0
    for one in sql.records(_Alive, trace, _ALIVE, at):
        known = program_names(trace, one.graph).get(one.name)
        if not one.made:
            kind = _kind_of_input(known)
            sizes[kind] += one.storage_bytes
            given += one.storage_bytes
        elif not one.met_by_backward and known is not None and known.kind == "gradient":
            sizes["gradients"] += one.storage_bytes
            results += one.storage_bytes
    sizes["saved for the backward pass"] += saved
    sizes["other results"] += kept - results
    regions = _regions(trace, peak)
    again = _recomputed(trace, peak, regions)
    sizes["recomputed activations"] += sum(row.storage_bytes for row in again)
    sizes["temporaries"] += made - saved - kept - sizes["recomputed activations"]
    sizes["unknown inputs"] += live - made - given
    parts = [PeakPart(kind, sizes[kind], sizes[kind] / live) for kind in PEAK_MEANINGS if sizes[kind] > 0]
    parts.sort(key=lambda part: -part.storage_bytes)
    return PeakParts(peak, parts, _by_region(again, regions), len({*regions.values()}))


def _by_region(rows: list[AliveRow], regions: Mapping[str, int]) -> list[RecomputedRegion]:
    groups: defaultdict[int, list[AliveRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: -row.storage_bytes):
        groups[regions[row.name]].append(row)
    found = [
        RecomputedRegion(sum(row.storage_bytes for row in group), [row.site for row in group if row.site is not None])
        for group in groups.values()
    ]
    return sorted(found, key=lambda one: -one.storage_bytes)


def _regions(trace: Trace, peak: RunPeak) -> dict[str, int]:
    """Return the checkpointed region of each activation that the graph of the peak computes again, by buffer."""
    of_sites = [sql.json_value(text) for (text,) in sql.rows(trace, _RECOMPUTED, [peak.graph])]
    return {buffer: region for of_site in of_sites for buffer, region in of_site.items()}


def _recomputed(trace: Trace, peak: RunPeak, regions: Mapping[str, int]) -> list[AliveRow]:
    """Return the recomputed activations that are alive at the peak."""
    alive = alive_in_call(trace, peak.call, peak.position) if regions and peak.call is not None else None
    rows = alive.rows if alive else []
    return [row for row in rows if row.kind == "temporary" and row.device == peak.device and row.name in regions]


def _kind_of_input(known: ProgramName | None) -> PeakKind:
    if known is not None and known.name is not None and _STATE.search(known.name):
        return "optimizer state"
    return _GIVEN.get(known.kind if known is not None else None, "unknown inputs")
