"""Reads durations of kernels from a trace of PyTorch's profiler.

A package compiled with `enable_kernel_profile` names its kernels there.
"""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

Durations = Mapping[str, Sequence[int]]
"""Durations in ns, by kernel, in the order in which its launches ran."""
_CATEGORIES = ("cpu_op", "kernel")
"""Events on the CPU, with the name that the package gives them, and on a device, with the kernel's own name."""
_LONGEST_US = 1 << 50
_GRAPH = re.compile(r"^graph_\d+_")
"""Prefix of the names of generated kernels."""


def durations(profile: Path) -> Durations:
    """Return the durations of kernels; those on a device if the profile has both.

    Raises OSError, and ValueError with one sentence if the file is not such a trace.
    """
    data = profile.read_bytes()
    try:
        trace = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{profile}: no trace of PyTorch's profiler: {error}") from None
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise ValueError(f"{profile}: no trace of PyTorch's profiler: it has no traceEvents")
    found: dict[str, defaultdict[str, list[tuple[float, int]]]] = {name: defaultdict(list) for name in _CATEGORIES}
    for event in events:
        if (one := _complete(event)) is not None:
            found[event["cat"]][_GRAPH.sub("", event["name"], count=1)].append(one)
    merged = {**found["cpu_op"], **found["kernel"]}
    return {name: [duration for _, duration in sorted(times)] for name, times in merged.items()}


def _complete(event: Any) -> tuple[float, int] | None:
    """Return the start and the duration (ns) of a complete event; None for other events."""
    if not isinstance(event, dict) or event.get("ph") != "X" or event.get("cat") not in _CATEGORIES:
        return None
    start, duration = event.get("ts"), event.get("dur")
    if not isinstance(start, (int, float)) or not isinstance(duration, (int, float)) or not 0 <= duration < _LONGEST_US:
        return None
    return (start, round(duration * 1000)) if isinstance(event.get("name"), str) else None
