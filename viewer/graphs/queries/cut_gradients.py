"""Queries the operations behind which Dynamo's graphs pass no gradient to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from stepscope.viewer.graphs.queries.dynamo_nodes import Function, Node, Nodes, functions_of, returned
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_GRAPHS = """
    SELECT max(record) FROM records WHERE log = ? AND event = 'dynamo_output_graph' GROUP BY compile_id
    ORDER BY min(record) LIMIT ?
"""
_MOST_GRAPHS = 100
_WITHOUT_GRADIENTS = re.compile(r"_set_grad_enabled\((False|True)\)")
_FLOATING = re.compile(r"b?f\d|c\d")
_IN_PLACE = re.compile(r"[a-z0-9]_$")
"""The name of a function that changes its first operand."""
_WRITTEN = re.compile(r"^[ \t]+\w+(?:\[.*\] =| [-+*/@%&|]=| //=| \*\*=) ([^;]+)", re.MULTILINE)
"""What a statement such as ``out[0] = x`` or ``out += x`` writes."""
_WORD = re.compile(r"\w+")


def cut_gradients(trace: Trace, log: int, parameters: Sequence[str]) -> list[Node]:
    """Return where the gradients of parameters end, in the order of the graphs: calls of `detach`, and operations in
    `torch.no_grad()`. Integers and comparisons, which have no gradients, are passed over.

    `parameters` are names such as ``encoder.0.weight``, in the outermost module. The list is empty unless the graphs
    have all of them, and if a graph returns something else that depends on one of them, or may do so because it
    changes a tensor in place. What is done outside of graphs is not known.
    """
    records = sql.rows(trace, _GRAPHS, [log, _MOST_GRAPHS + 1])
    found, seen = list[Node](), set[str]()
    for (record,) in records[:_MOST_GRAPHS]:
        for function in functions_of(trace, record)[:1]:
            inputs = inputs_of(function.nodes, parameters)
            ends = ends_of(function, inputs.values()) if inputs else []
            if ends is None:
                return []
            seen |= inputs.keys()
            found += ends
    return found if len(seen) == len(parameters) and len(records) <= _MOST_GRAPHS else []


def inputs_of(nodes: Nodes, parameters: Sequence[str]) -> dict[str, str]:
    """Return the inputs of a graph with these nodes that are parameters, by the name of the parameter."""
    wanted = {re.compile(rf"L_(?:(?!modules_)\w)*?_?{_ending(one)}", re.IGNORECASE): one for one in parameters}
    names = [one.name for one in nodes.values() if one.function == "placeholder"]
    return {wanted[form]: name for name in names for form in wanted if form.fullmatch(name)}


def ends_of(function: Function, inputs: Iterable[str]) -> list[Node] | None:
    """Return the nodes behind which the function of a graph passes no gradient to its inputs, and on which its results
    depend; None if gradients of a result flow to one of the inputs, or if that is not known."""
    results = returned(function.text)
    reached, ends = _followed(function.nodes, set(inputs))
    if reached & results or _changes_in_place(function, reached):
        return None
    return [end for end in ends if _reach(function.nodes, end.name) & results]


def _ending(parameter: str) -> str:
    """Return the end of the name that Dynamo gives to the input for a parameter of a module."""
    *modules, name = (re.sub(r"\W", "_", part) for part in parameter.split("."))
    return "".join(f"modules_{module}_" for module in modules) + f"parameters_{name}_"


def _followed(nodes: Nodes, inputs: set[str]) -> tuple[set[str], list[Node]]:
    """Return the nodes to whose results gradients flow from `inputs`, and the nodes that end this."""
    reached, ends = inputs, list[Node]()
    for node, has_gradients in _with_modes(nodes):
        if reached.isdisjoint(node.operands) or not (node.dtype is None or _FLOATING.match(node.dtype)):
            continue
        if node.function == "detach" or not has_gradients:
            ends.append(node)
        else:
            reached.add(node.name)
    return reached, ends


def _reach(nodes: Nodes, start: str) -> set[str]:
    """Return the nodes that depend on one of them, and this one."""
    reached = {start}
    for node in nodes.values():
        if not reached.isdisjoint(node.operands):
            reached.add(node.name)
    return reached


def _changes_in_place(function: Function, reached: set[str]) -> bool:
    """Return whether a value that gradients flow to may be written into another tensor."""
    changing = (node for node in function.nodes.values() if _IN_PLACE.search(node.function))
    if any(not reached.isdisjoint(node.operands) for node in changing):
        return True
    written = _WRITTEN.findall(function.text)
    return any(not reached.isdisjoint(_WORD.findall(value)) for value in written)


def _with_modes(nodes: Nodes) -> Iterator[tuple[Node, bool]]:
    """Yield the nodes, each with whether gradients are enabled."""
    is_enabled = True
    for node in nodes.values():
        mode = _WITHOUT_GRADIENTS.search(node.text)
        if mode is not None:
            is_enabled = mode[1] == "True"
        yield node, is_enabled
