"""Queries matrix products that compute in float32 because a float32 tensor met one of less precision before them, from
the graphs of Dynamo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.dynamo_nodes import Function, Node, Nodes, dynamo_graphs, functions_of
from stepscope.viewer.graphs.queries.program_names import names_of_dynamo
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store.trace import Trace

_LOW = {"bf16": "bfloat16", "f16": "float16"}
_COMBINING = {"*", "mul", "multiply", "+", "add", "-", "sub", "/", "div"}
_PRODUCTS = {
    "linear", "matmul", "@", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention", "conv1d",
    "conv2d", "conv3d",
}  # fmt: skip
_VIEWS = {"index", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "contiguous"}


@dataclass(frozen=True)
class PromotedProduct:
    """A matrix product in float32, and the operation before it that combines two dtypes."""

    log: int
    graph: int
    step: int
    """The step of the first call of the graph."""
    start_ns: int
    product: str
    """Such as ``matmul``."""
    low: str
    """``bfloat16`` or ``float16``."""
    name: str | None
    """The program's name of the float32 tensor, if that is an input of the graph."""
    product_source: SourceLine | None
    source: SourceLine | None
    """Of the operation that combines the dtypes."""


def promoted_products(trace: Trace) -> Iterator[PromotedProduct]:
    """Yield the products in the order of their graphs."""
    for of in dynamo_graphs(trace):
        for function in functions_of(trace, of.record)[:1]:
            found = [*promotions(function)]
            names = names_of_dynamo(trace, of.log, of.compile_id, of.record) if found else {}
            known = {name.lower(): one.name for name, one in names.items()}  # statements write them in lower case
            for product, combining, high in found:
                low = next(_LOW[one.dtype or ""] for one in _operands(combining, function.nodes) if one.dtype in _LOW)
                yield PromotedProduct(
                    of.log, of.graph, of.step, of.start_ns, _plain(product.function), low,
                    known.get(_root(high, function.nodes).name.lower()), product.source, combining.source,
                )  # fmt: skip


def promotions(function: Function) -> Iterator[tuple[Node, Node, Node]]:
    """Yield the products in float32 of a function of a graph that depend, by float32 tensors alone, on an operation
    which combines a tensor of float32 with one of bfloat16 or float16: the product, the operation, and the float32
    tensor. Under autocast, which converts what products get, there are none."""
    nodes = function.nodes
    if "autocast" in function.text:
        return
    made: dict[str, tuple[Node, Node]] = {}
    for node in nodes.values():
        operands = _operands(node, nodes) if node.dtype == "f32" else []
        before = next((made[one.name] for one in operands if one.name in made), None)
        high = next((one for one in operands if one.dtype == "f32" and one.sizes), None)
        if before is None and high is not None and node.function in _COMBINING:
            before = (node, high) if any(one.dtype in _LOW and one.sizes for one in operands) else None
        if before is not None:
            made[node.name] = before
            if node.function in _PRODUCTS:
                yield node, *before


def _operands(node: Node, nodes: Nodes) -> list[Node]:
    return [nodes[name] for name in node.operands]


def _root(node: Node, nodes: Nodes) -> Node:
    """Return the tensor that a node shows the elements of."""
    while node.function in _VIEWS and node.operands:
        node = nodes[node.operands[0]]
    return node


def _plain(function: str) -> str:
    return "matmul" if function == "@" else function
