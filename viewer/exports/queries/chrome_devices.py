"""Queries on which devices launches ran, and what a log knows of its devices and ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_HOST = ("cpu", "meta")
_GPU_KINDS = ("triton", "user_triton")
_TENSORS = """
    SELECT DISTINCT t.site, a.role, t.device FROM tensors t
    LEFT JOIN arguments a ON a.site = t.site AND a.argument = t.argument
    WHERE t.log = ? AND t.device IS NOT NULL ORDER BY ALL
"""
_TIMED = """
    SELECT DISTINCT l.site, s.kind FROM launches l JOIN sites s ON s.site = l.site
    WHERE l.log = ? AND l.device_duration_ns IS NOT NULL ORDER BY 1
"""


class Placement(NamedTuple):
    """The device on which a launch site runs, with its number, and the devices that it reads and writes."""

    device: int
    reads: list[str]
    writes: list[str]


class RunFacts(NamedTuple):
    rank: int | None
    world_size: int | None
    devices: list[str]
    """Names of the devices other than the CPU, by number."""


def run_facts(trace: Trace) -> dict[int, RunFacts]:
    """Return the ranks and devices of each log."""
    found = sql.rows(trace, "SELECT log, rank, world_size, run FROM logs ORDER BY log")
    return {log: RunFacts(rank, world_size, _devices(sql.json_value(run))) for log, rank, world_size, run in found}


def timed_kernels(trace: Trace, log: int, has_devices: bool) -> dict[int, Placement]:
    """Return the launch sites that ran on a GPU and whose times on it are known. `has_devices` says that the log's
    machine has a GPU, which then is the device of sites whose tensors are not known."""
    tensors: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for site, role, device in sql.rows(trace, _TENSORS, [log]):
        tensors[site].append((role or "in", device))
    seen = Counter(number for places in tensors.values() for _, name in places if (number := _number(name)) is not None)
    usual = seen.most_common(1)[0][0] if seen else 0 if has_devices else None
    placed = {
        site: _placed(tensors.get(site, []), usual, kind in _GPU_KINDS, bool(seen))
        for site, kind in sql.rows(trace, _TIMED, [log])
    }
    return {site: placement for site, placement in placed.items() if placement is not None}


def _placed(places: list[tuple[str, str]], usual: int | None, is_gpu: bool, has_gpu_tensors: bool) -> Placement | None:
    numbers = [number for _, device in places if (number := _number(device)) is not None]
    is_host = has_gpu_tensors and any(device.startswith(_HOST) for _, device in places)
    if not numbers and (is_host or usual is None) and not is_gpu:
        return None
    reads = [device for role, device in places if role != "out"]
    return Placement(numbers[0] if numbers else usual or 0, reads, [device for role, device in places if role != "in"])


def _number(device: str) -> int | None:
    """Return 1 for ``cuda:1``; None for the CPU and for arguments that are not tensors."""
    kind, _, number = device.partition(":")
    if not kind or kind in _HOST or not (number or "0").isdecimal():
        return None
    return min(int(number or 0), 1 << 16)


def _devices(run: Mapping[str, Any] | None) -> list[str]:
    found = (run or {}).get("devices")
    return [name for name in found if isinstance(name, str) and not name.startswith("cpu")] if found else []
