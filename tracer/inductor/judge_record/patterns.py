"""Describes by operators what Inductor lowers in place of several matched nodes.

``register_lowering_pattern`` (``torch/_inductor/fx_passes/post_grad.py``) puts a function of its own in the graph,
which has no reference in eager code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from stepscope.tracer.judge.record import Json, Node, members_of, node_of

_FROM = "function:torch._inductor.fx_passes.post_grad"


def with_operators(nodes: list[Node]) -> list[Node]:
    """Return the nodes of a graph, with several operators for each pattern that is known; the last one has its name."""
    by_name = {node.name: node for node in nodes}
    return [
        part
        for node in nodes
        for part in (_PATTERNS[node.target](node, by_name) if node.target in _PATTERNS else [node])
    ]


def _mm_plus_mm(node: Node, nodes: Mapping[str, Node]) -> list[Node]:
    given: dict[str, Json] = node.kwargs["dict"]
    products = [
        replace(node, name=f"{node.name}_product_{n}", target="op:aten.mm.default", kwargs={"dict": {}},
                args={"tuple": [given[f"mat{2 * n - 1}"], given[f"mat{2 * n}"]]})
        for n in (1, 2)
    ]  # fmt: skip
    operands: Json = {"tuple": [{"node": one.name} for one in products]}
    return [*products, replace(node, target="op:aten.add.Tensor", args=operands, kwargs={"dict": {}})]


def _cat_slice_cat(node: Node, nodes: Mapping[str, Node]) -> list[Node]:
    """Return the slice of the first matrix, and the concatenation of all matrices with it."""
    tensors = members_of((members_of(node.args) or [None])[0]) or [None]
    columns, first = node.kwargs["dict"]["size"], nodes.get(node_of(tensors[0]) or "")
    if first is None or not isinstance(columns, int) or not isinstance(first.size[1], int):
        return [node]
    if not 0 <= columns <= first.size[1]:
        return [node]
    columns_again = replace(
        node, name=f"{node.name}_columns", target="op:aten.slice.Tensor", kwargs={"dict": {}},
        args={"tuple": [tensors[0], 1, 0, columns]}, size=[first.size[0], columns], stride=first.stride,
    )  # fmt: skip
    joined: Json = {"tuple": [{"list": [*tensors, {"node": columns_again.name}]}, 1]}
    return [columns_again, replace(node, target="op:aten.cat.default", args=joined, kwargs={"dict": {}})]


_PATTERNS: Mapping[str, Callable[[Node, Mapping[str, Node]], list[Node]]] = {
    f"{_FROM}.mm_plus_mm": _mm_plus_mm,
    f"{_FROM}.cat_slice_cat": _cat_slice_cat,
}
