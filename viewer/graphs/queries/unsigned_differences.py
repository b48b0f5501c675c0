"""Queries differences of unsigned integers that are converted afterwards, from the graphs of Dynamo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.dynamo_nodes import Function, Node, Nodes, dynamo_graphs, functions_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store.trace import Trace

_UNSIGNED = {"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}
_DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32"}
_DIFFERENCES = {"-", "sub", "subtract"}
_LARGEST, _SMALLEST = {"max", "maximum", "amax"}, {"min", "minimum", "amin"}
_CONVERSIONS = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "long", "int", "short"}
_OPERATORS = {"+", "-", "*", "/", "**"}
_ARITHMETIC = {"add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "pow", "sum", "mean"}
_SHOW_SIGN = _CONVERSIONS | _OPERATORS | _ARITHMETIC


@dataclass(frozen=True)
class UnsignedDifference:
    """A difference of two tensors of an unsigned dtype."""

    log: int
    graph: int
    step: int
    """The step of the first call of the graph."""
    start_ns: int
    dtype: str
    converted_to: str
    """The dtype of the operation that uses the difference, such as ``float32``; ``abs`` for its absolute value."""
    source: SourceLine | None


def unsigned_differences(trace: Trace) -> Iterator[UnsignedDifference]:
    """Yield the differences in the order of their graphs."""
    for of in dynamo_graphs(trace):
        for node, converted_to in differences(functions_of(trace, of.record)):
            dtype = _UNSIGNED[node.dtype or ""]
            yield UnsignedDifference(of.log, of.graph, of.step, of.start_ns, dtype, converted_to, node.source)


def differences(graph: Sequence[Function]) -> Iterator[tuple[Node, str]]:
    """Yield the differences of unsigned tensors in a graph of Dynamo that are converted to another dtype,
    or whose absolute value is taken, with that dtype or ``abs``. A difference of a maximum or from a minimum does
    not count, because it is usually not negative."""
    for _, nodes in graph:
        found: dict[str, Node] = {}
        for node in nodes.values():
            operands = [nodes[name] for name in node.operands]
            if node.function in _DIFFERENCES and node.dtype in _UNSIGNED and _are_two_unsigned(operands):
                made_by = [_made_by(operand, nodes) for operand in operands]
                if made_by[0] not in _LARGEST and made_by[1] not in _SMALLEST:
                    found[node.name] = node
            used = [found.pop(name) for name in node.operands if name in found and _shows_sign(node)]
            yield from ((one, "abs" if node.function == "abs" else _DTYPES[node.dtype or ""]) for one in used)


def _are_two_unsigned(operands: list[Node]) -> bool:
    return len(operands) == 2 and all(one.dtype in _UNSIGNED for one in operands)


def _made_by(node: Node, nodes: Nodes) -> str:
    """Return the function that made a tensor, also for one of its results."""
    return nodes[node.operands[0]].function if node.function == "index" else node.function


def _shows_sign(node: Node) -> bool:
    return node.function == "abs" or (node.dtype in _DTYPES and node.function in _SHOW_SIGN)
