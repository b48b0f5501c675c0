"""Finds the nodes of Dynamo's graph and the ATen operators that a kernel computes.

Inductor writes them above the launches of Triton and extern kernels, but not of C++ kernels; the rules are those of
`get_kernel_metadata` in torch/_inductor/utils.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def source_nodes(origins: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Return the distinct names of source nodes and of operators for FX nodes of the graph that Inductor compiled."""
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
    """Return the nodes in the order of their graph; nodes of several graphs keep their order."""
    found = list(dict.fromkeys(origins))
    return sorted(found) if len({origin.graph for origin in found}) == 1 else found


def _operator(original: Any) -> str | None:
    from torch._ops import HigherOrderOperator, OpOverload

    if isinstance(original, OpOverload):
        return str(original.overloadpacket)
    return str(original) if isinstance(original, HigherOrderOperator) else None
