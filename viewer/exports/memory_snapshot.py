"""Writes births and deaths of storages in the format of PyTorch's memory viewer."""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from typing import Any

from stepscope.viewer.exports.formats import Wanted
from stepscope.viewer.exports.queries import tables as queries
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.memory.queries.graph_index import graph_index, label_of
from stepscope.viewer.store.trace import Trace

_ALIGNED = 512
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
_OF_TORCH = "/site-packages/torch/"


def export(trace: Trace, wanted: Wanted) -> int:
    snapshot = memory_snapshot(trace)
    wanted.path.write_bytes(pickle.dumps(snapshot, protocol=4))
    return sum(event["action"] == "alloc" for events in snapshot["device_traces"] for event in events)


def memory_snapshot(trace: Trace) -> dict[str, Any]:
    """Return the storages that compiled calls saw, in the form of `torch.cuda.memory._snapshot()`.

    Addresses are invented, and each storage has its own. The traces of CUDA devices in `device_traces` are at the
    index of the device, and those of other devices follow.
    """
    clocks, frames = queries.clocks(trace), _Frames(trace)
    events: defaultdict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    alive: list[tuple[str, dict[str, Any]]] = []
    address = _ALIGNED
    for row in queries.storages(trace):
        place = {"addr": address, "size": row.storage_bytes, "stream": 0, "frames": frames.of(row)}
        address += -(-max(row.storage_bytes, 1) // _ALIGNED) * _ALIGNED
        for ns, order, action in _actions(row):
            time_us = (ns + clocks.get(row.log, 0)) // 1000
            events[row.device].append((ns, order, {"action": action, **place, "time_us": time_us}))
        if row.died_ns is None:
            alive.append((row.device, place))
    devices = _ordered(events)
    traces = [[event for _, _, event in sorted(events.get(device, ()), key=lambda one: one[:2])] for device in devices]
    segments = [_segment(devices.index(device), place) for device, place in alive]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _actions(row: queries.StorageRow) -> list[tuple[int, int, str]]:
    """Return (ns, order, action); at equal times, deaths precede births, except the death of a storage born then."""
    found = [(row.born_ns, 1, "alloc")]
    if row.died_ns is not None:
        order = 2 if row.died_ns == row.born_ns else 0
        found += [(row.died_ns, order, "free_requested"), (row.died_ns, order, "free_completed")]
    return found


def _ordered(found: dict[str, Any]) -> list[str]:
    indices = [int(name[5:]) for name in found if name.startswith("cuda:") and name[5:].isdigit() and len(name) < 9]
    cuda = [f"cuda:{i}" for i in range(max(indices, default=-1) + 1)]
    return [*cuda, *sorted(name for name in found if name not in cuda)]


def _segment(device: int, place: dict[str, Any]) -> dict[str, Any]:
    size, frames = place["size"], place["frames"]
    block = {
        "address": place["addr"], "size": size, "requested_size": size, "state": "active_allocated", "frames": frames,
    }  # fmt: skip
    return {
        "device": device, "address": place["addr"], "total_size": size, "allocated_size": size, "active_size": size,
        "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": frames, "blocks": [block],
    }  # fmt: skip


class _Frames:
    """The stack that is shown for a storage: the buffer and its kernel, then lines of the program, innermost first.

    An allocation has the model lines that its kernel computes, and the lines that called the compiled function. Where
    an input was allocated is not recorded, so it has the latter alone, as has a kernel without known model lines."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._stacks, self._callers = trace, queries.stacks(trace), queries.callers(trace)
        self._known: dict[tuple[int, str, int | None, str], list[dict[str, Any]]] = {}

    def of(self, row: queries.StorageRow) -> list[dict[str, Any]]:
        key = row.graph, row.name, row.site, row.kind
        if key not in self._known:
            self._known[key] = self._read(row)
        return self._known[key]

    def _read(self, row: queries.StorageRow) -> list[dict[str, Any]]:
        places, label = graph_index(self._trace, row.graph), label_of(self._trace, row.graph)
        site = None if row.kind == "input" else places.writer(row.name, row.site)
        kernel = places.kernel(site)
        name = f"{f'{row.program}, ' if row.program else ''}{row.name} ({kernel or row.kind})"
        own = {"filename": f"graph {row.graph}: {label}", "line": 0, "name": name}
        model = self._model_lines(site) if row.kind != "input" else []
        lines = _joined(self._called_at(row.graph), model)
        return [own, *({"filename": f["file"], "line": f["line"], "name": _named(f)} for f in reversed(lines))]

    def _model_lines(self, site: int | None) -> list[dict[str, Any]]:
        stacks = loads(self._stacks.get(site, "[]").encode()) if site is not None else []
        return next((stack for stack in stacks if stack), [])

    def _called_at(self, graph: int) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = loads(self._callers.get(graph, "[]").encode())
        return [line for line in lines if _OF_TORCH not in line["file"].replace("\\", "/")]


def _joined(callers: list[dict[str, Any]], model: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the callers of the compiled function, then the model lines, which begin in it or in one of its callers."""
    places = [_function(line) for line in callers]
    first = _function(model[0]) if model else None
    shared = len(places) - 1 - places[::-1].index(first) if first in places else len(places)
    return [*callers[:shared], *model]


def _function(line: dict[str, Any]) -> tuple[str, str]:
    """Return the file and the function of a line, which may be in the part of it that resumes after a graph break."""
    resumed = _RESUMED.fullmatch(line["function"])
    return line["file"], resumed[1] if resumed else line["function"]


def _named(line: dict[str, Any]) -> str:
    """Return the function, with a remark if its line has changed, as the memory viewer has no other place for it."""
    changed = line.get("as_compiled")
    return f"{line['function']} ({changed})" if changed else str(line["function"])
