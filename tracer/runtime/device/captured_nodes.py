"""Counts the nodes that each launch adds to a CUDA graph, so that the work of a replay can be joined to its launch.

A profiler reports the work of a replay without the host calls that were captured, in the order in which it ran. On one
stream this is the order of the graph's nodes. Counting takes some microseconds per launch, in captures only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from stepscope.tracer.inductor.device_launch import raw_stream_of

_SEEN = {0, 1, 2}
"""Types of nodes (``CUgraphNodeType``) whose work a profiler reports: kernels, copies and fills."""
_UNKNOWN = {4, 13}
"""Types of nodes that contain other nodes: child graphs and conditions."""


class NodeCounter:
    """Counts the nodes of the graph that is captured; called before and after each launch of a captured call."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self) -> None:
        try:
            self.counts.append(_count(_captured_graph()))
        except Exception:  # this driver cannot tell
            self.counts.append(0)


def seen_before() -> list[int]:
    """Return how many of the first 0, 1, 2, ... nodes of the graph that is captured do work that a profiler reports;
    an empty list if that is not known."""
    graph = _captured_graph()
    count = ctypes.c_size_t(_count(graph))
    nodes, seen = (ctypes.c_void_p * count.value)(), []
    if not count.value or _driver().cuGraphGetNodes(graph, nodes, ctypes.byref(count)):
        return []
    for node in nodes:
        kind = ctypes.c_int()
        if _driver().cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) or kind.value in _UNKNOWN:
            return []
        seen.append(kind.value in _SEEN)
    return list(accumulate(seen, initial=0))


@dataclass(frozen=True)
class ReplayedWork:
    """A replay of a CUDA graph that was submitted from `start_ns` to `end_ns`, with the calls in it."""

    thread: int
    start_ns: int
    end_ns: int
    seen_before: Sequence[int]
    """Number of pieces of work among the first 0, 1, 2, ... nodes; empty if that is not known."""
    calls: Sequence[tuple[int, Sequence[int]]]
    """Number of each replayed call, and the number of nodes before and after each of its launches; the calls inside
    another one come after it."""

    def owners(self, pieces: int) -> list[tuple[int | None, int]]:
        """Return the call and the launch (a position in it) of each of `pieces` pieces of work, in their order.

        Work that no launch captured has no call. If the nodes do not tell, all work belongs to the only call, and to
        none of its launches (-1)."""
        if not self.seen_before or self.seen_before[-1] != pieces:
            return [(self.calls[0][0] if len(self.calls) == 1 else None, -1)] * pieces
        found: list[tuple[int | None, int]] = [(None, -1)] * pieces
        for number, counts in self.calls:
            for launch, (before, after) in enumerate(zip(counts[0::2], counts[1::2], strict=False)):
                for place in range(self.seen_before[before], self.seen_before[after]):
                    found[place] = number, launch
        return found


def _captured_graph() -> ctypes.c_void_p:
    """Return the graph that the current stream captures, or null."""
    import torch

    stream = raw_stream_of()(torch.cuda.current_device())
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    nodes, count = ctypes.c_void_p(), ctypes.c_size_t()
    found = (ctypes.byref(one) for one in (status, number, graph, nodes, count))
    failed = _driver().cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *found)
    return ctypes.c_void_p() if failed else graph


def _count(graph: ctypes.c_void_p) -> int:
    count = ctypes.c_size_t()
    return count.value if graph and not _driver().cuGraphGetNodes(graph, None, ctypes.byref(count)) else 0


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
