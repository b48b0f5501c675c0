"""Finds what FX nodes come from: nn modules, and nodes of Dynamo's graph with their ATen operators.

The modules identify code of torch's own modules (`nn.Sequential`). torch keeps them in `nn_module_stack` and
`fwd_nn_module_stack` of `torch.fx.Node.meta` (2.9 to 2.13):
module id -> (path, class), outermost first; paths begin with Dynamo's name of the root, as in ``L['self'].layers.0``.

Inductor writes the nodes and operators above the launches of Triton and extern kernels, but not of C++ kernels; the
rules are those of `get_kernel_metadata` in torch/_inductor/utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_STACKS = ("nn_module_stack", "fwd_nn_module_stack")
_KEY = re.compile(r"(?:\._modules)?\[['\"]?([^\]'\"]*)['\"]?\]")


def module_paths(nodes: Iterable[Any]) -> list[str]:
    """Return the innermost modules of forward or backward FX nodes, sorted by name: ``Sequential.2 (GELU)``."""
    return sorted({path for node in nodes if (path := _path(getattr(node, "meta", None) or {}))}, key=_by_number)


def _path(meta: dict[str, Any]) -> str | None:
    stack = next((list(meta[name].values()) for name in _STACKS if meta.get(name)), None)
    if not stack:
        return None
    (root, root_class), (path, innermost) = stack[0], stack[-1]
    if len(stack) == 1:
        return _name(root_class)
    inner = _KEY.sub(r".\1", path.removeprefix(root) if path.startswith(root) else f".{path}")
    return f"{_name(root_class)}{inner} ({_name(innermost)})"


def _name(kind: Any) -> str:
    """Return the unqualified name of a class, given the class or its qualified name."""
    return str(getattr(kind, "__name__", kind)).rpartition(".")[2]


def _by_number(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path)]


def recomputed_region(node: Any) -> int | None:
    """Return the number of the checkpointed region that an FX node of a backward graph computes again, or None.

    The partitioner copies such nodes from the joint graph with their tags (torch/_functorch/partitioners.py)."""
    meta = getattr(node, "meta", None) or {}
    region = meta.get("ac_graph_id") if meta.get("partitioner_tag") == "is_forward" else None
    return region if isinstance(region, int) else None


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
