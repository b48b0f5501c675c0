"""Tells from the graph of Dynamo whether the program passes two tensors to an operator, each in memory of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stepscope.viewer.graphs.queries.argument_facts import SharedMemory, View
from stepscope.viewer.graphs.queries.dynamo_nodes import Node, Nodes, functions_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_GRAPH = """
    SELECT max(d.record) FROM graphs g
    JOIN records d ON d.log = g.log AND d.compile_id = g.compile_id AND d.event = 'dynamo_output_graph'
    WHERE g.graph = ?
"""
_FILLED = ("empty", "zeros", "ones", "full", "rand", "randn")
_NEW = {"clone", "+", "-", "*", "/", "@"} | {f"{before}{name}" for name in _FILLED for before in ("", "new_")}
_NEW |= {f"{name}_like" for name in _FILLED}
"""Functions whose result is in new memory."""
_OF_FIRST = {
    "index", "view", "view_as", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "t",
    "contiguous", "detach", "expand", "expand_as", "narrow", "select", "diagonal", "split", "chunk", "unbind",
    "to", "float", "half", "bfloat16", "double",
}  # fmt: skip
"""Functions whose result is in the memory of their first operand, or in new memory."""


def separate_tensor(trace: Trace, pair: SharedMemory, source: SourceLine | None) -> tuple[View, Node] | None:
    """Return the argument of the pair for which the program makes a tensor in memory of its own, and this tensor, if
    each call of the operator at this line gets two tensors that cannot share memory. If no call is at this line, as
    that of equal code from a cache, all calls of the graph count."""
    record = sql.number(trace, _GRAPH, [pair.graph])
    if record is None:
        return None
    operator = pair.kernel.removesuffix(".default")
    calls = [
        (node, function.nodes)
        for function in functions_of(trace, record)
        for node in function.nodes.values()
        if node.text.startswith((f"{operator}.", f"{operator}("))
    ]
    of_line = [call for call in calls if _place(call[0].source) == _place(source)]
    found = [_separate(pair, *call) for call in of_line or calls]
    return found[0] if found and all(found) else None


def _place(source: SourceLine | None) -> tuple[str, int] | None:
    return (source.file, source.line) if source is not None else None


def _separate(pair: SharedMemory, call: Node, nodes: Nodes) -> tuple[View, Node] | None:
    memory = [_memory(_given(view, call, nodes), nodes) for view in (pair.read, pair.written)]
    read, written = memory
    if read is None or written is None or read.name == written.name:
        return None
    if read.function in _NEW:
        return pair.read, read
    return (pair.written, written) if written.function in _NEW else None


def _given(view: View, call: Node, nodes: Nodes) -> Node | None:
    """Return the tensor that a call gives for an argument, or None if it is not certain which one."""
    try:
        parsed = ast.parse(call.text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(parsed, ast.Call):
        return None
    for keyword in parsed.keywords:
        if keyword.arg == view.parameter and isinstance(keyword.value, ast.Name):
            return nodes.get(keyword.value.id)
    if not all(isinstance(one, ast.Name | ast.Constant) for one in parsed.args):
        return None
    tensors = [*_tensors(parsed.args, nodes)]
    return tensors[view.argument] if view.argument < len(tensors) else None


def _tensors(arguments: list[ast.expr], nodes: Nodes) -> Iterator[Node]:
    for one in arguments:
        node = nodes.get(one.id) if isinstance(one, ast.Name) else None
        if node is not None and node.dtype is not None:
            yield node


def _memory(node: Node | None, nodes: Nodes) -> Node | None:
    """Return the tensor whose memory a tensor has: an input, or one that is in new memory; None if it is unknown."""
    while node is not None and node.function not in ("placeholder", *_NEW):
        is_view = node.function in _OF_FIRST or node.function.endswith("_")
        node = nodes[node.operands[0]] if is_view and node.operands else None
    return node
