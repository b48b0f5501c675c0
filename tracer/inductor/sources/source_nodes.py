"""Which nodes of Dynamo's graph and which ATen operators a kernel computes.

Inductor writes them above the launches of Triton kernels and extern kernels, not of C++ kernels
(torch/_inductor/utils.py, `get_kernel_metadata`, whose rules these are).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def source_nodes(origins: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Names of nodes and of operators, each once, of FX nodes of the graph that Inductor has compiled."""
    nodes: dict[str, None] = {}
    operators: dict[str, None] = {}
    for origin in _in_order(origin for origin in origins if origin.op == "call_function"):
        operator = _operator(origin.meta.get("original_aten"))
        if operator is not None:
            operators[operator] = None
        before = origin.meta.get("from_node")
        if before:
            nodes[before[0].name] = None
        elif origin.meta.get("partitioner_tag") == "is_backward":
            nodes[origin.name] = None
    return list(nodes), list(operators)


def _in_order(origins: Iterable[Any]) -> list[Any]:
    """As they stand in their graph; those of several graphs as they come."""
    found = list(dict.fromkeys(origins))
    return sorted(found) if len({origin.graph for origin in found}) == 1 else found


def _operator(original: Any) -> str | None:
    from torch._ops import HigherOrderOperator, OpOverload

    if isinstance(original, OpOverload):
        return str(original.overloadpacket)
    return str(original) if isinstance(original, HigherOrderOperator) else None
