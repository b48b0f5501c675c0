"""Describes the scheduler nodes that a reordering pass has swapped, so that a reader can identify them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stepscope.tracer.schema.memory import SwappedNode


def describe(nodes: Sequence[Any]) -> list[SwappedNode]:
    """Return what each of `nodes` (torch/_inductor/scheduler.py) computes, reads and writes."""
    return [_describe(node) for node in nodes]


def _describe(node: Any) -> SwappedNode:
    parts = [part.node for part in node.get_nodes() if part.node is not None]
    origins = [origin for part in parts for origin in getattr(part, "origins", ())]
    calls = (origin for origin in origins if getattr(origin, "op", None) == "call_function")
    kernels = (getattr(part, "python_kernel_name", None) for part in parts)
    reads = (one.name for one in node.read_writes.reads if type(one).__name__ != "WeakDep")  # WeakDep only orders nodes
    return SwappedNode(
        name=node.get_name(),
        node_kind=type(node).__name__,
        kernels=_once(kernel for kernel in kernels if kernel),
        operators=_once(str(call.target) for call in calls),
        fx_nodes=_once(origin.name for origin in origins),
        reads=_once(reads),
        writes=_once(buffer.get_name() for buffer in node.get_outputs()),
    )


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
