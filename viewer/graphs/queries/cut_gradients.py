"""Queries the operations behind which Dynamo's graphs pass no gradient to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stepscope.viewer.graphs.queries.dynamo_nodes import Node, Nodes, functions, nodes_of, returned
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_GRAPHS = """
    SELECT max(record) FROM records WHERE log = ? AND event = 'dynamo_output_graph' GROUP BY compile_id
    ORDER BY min(record) LIMIT ?
"""
_MOST_GRAPHS = 100
_WITHOUT_GRADIENTS = re.compile(r"_set_grad_enabled\((False|True)\)")
_FLOATING = re.compile(r"b?f\d|c\d")


def cut_gradients(trace: Trace, log: int, parameters: Sequence[str]) -> list[Node]:
    """Return where the gradients of parameters end, in the order of the graphs: calls of `detach`, and operations in
    `torch.no_grad()`. Integers and comparisons, which have no gradients, are passed over.

    `parameters` are names such as ``encoder.0.weight``. The list is empty if a graph returns something else that
    depends on one of them; what is done outside of graphs is not known.
    """
    found: list[Node] = []
    for (record,) in sql.rows(trace, _GRAPHS, [log, _MOST_GRAPHS]):
        ends = ends_of(trace.payload(record).decode("utf-8", "replace"), parameters)
        if ends is None:
            return []
        found += ends
    return found


def ends_of(graph: str, parameters: Sequence[str]) -> list[Node] | None:
    """Return the nodes behind which the graph of this text passes no gradient to parameters; None if its results have
    gradients for one of them."""
    function = next(functions(graph), "")
    nodes, endings = nodes_of(function), tuple(map(_ending, parameters))
    inputs = [one.name for one in nodes.values() if one.function == "placeholder" and one.name.endswith(endings)]
    reached, ends = _followed(nodes, inputs)
    return None if reached & returned(function) else ends


def _ending(parameter: str) -> str:
    """Return the end of the name that Dynamo gives to the input for a parameter of a module."""
    *modules, name = (re.sub(r"\W", "_", part) for part in parameter.split("."))
    return "".join(f"modules_{module}_" for module in modules) + f"parameters_{name}_"


def _followed(nodes: Nodes, inputs: Sequence[str]) -> tuple[set[str], list[Node]]:
    """Return the nodes to whose results gradients flow from `inputs`, and the nodes that end this."""
    reached, ends = set(inputs), list[Node]()
    for node, has_gradients in _with_modes(nodes):
        if reached.isdisjoint(node.operands):
            continue
        if node.function == "detach" or not has_gradients:
            ends.append(node)
        elif node.dtype is None or _FLOATING.match(node.dtype):
            reached.add(node.name)
    return reached, ends


def _with_modes(nodes: Nodes) -> Iterator[tuple[Node, bool]]:
    """Yield the nodes, each with whether gradients are enabled."""
    is_enabled = True
    for node in nodes.values():
        mode = _WITHOUT_GRADIENTS.search(node.text)
        if mode is not None:
            is_enabled = mode[1] == "True"
        yield node, is_enabled
