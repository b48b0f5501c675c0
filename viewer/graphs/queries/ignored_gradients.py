"""Queries backward graphs with gradients that do not depend on the gradient which the graph gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from stepscope.viewer.graphs.queries.dynamo_nodes import Node, Nodes, functions_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_GRAPHS = """
    SELECT g.log, min(g.graph) AS graph, max(f.record) AS forward, max(b.record) AS backward,
           min(c.step) AS step, min(c.start_ns) AS start_ns
    FROM graphs g JOIN (SELECT graph, min(step) AS step, min(start_ns) AS start_ns FROM calls GROUP BY graph) c
      ON c.graph = g.graph
    JOIN records b ON b.log = g.log AND b.compile_id = g.compile_id AND b.event = 'aot_backward_graph'
    JOIN records f ON f.log = g.log AND f.compile_id = g.compile_id AND f.event = 'aot_forward_graph'
    WHERE g.phase = 'backward' GROUP BY g.log, g.compile_id ORDER BY g.log, graph
"""
_GRADIENT = re.compile(r"^\s+(\w+),  # GradAOTOutput\(", re.MULTILINE)
_GIVEN = "tangents_"
_BACKWARD = "backward"
"""The name of the method of a torch.autograd.Function that computes gradients."""


class IgnoredGradient(NamedTuple):
    """A backward graph some of whose gradients were computed without the gradient that it gets."""

    log: int
    graph: int
    step: int
    """The step of its first call."""
    start_ns: int
    ignoring: int
    """The number of these gradients."""
    gradients: int
    """The number of all gradients that the graph returns."""
    is_of_loss: bool
    """Whether the graph gets the gradient of a single number only."""
    source: SourceLine
    """The line in the `backward` of a torch.autograd.Function that computes the first of them."""


def ignored_gradients(trace: Trace) -> Iterator[IgnoredGradient]:
    """Yield one row for each such graph that was called, if a torch.autograd.Function computes the gradients: those of
    operators such as `round` are zero, whatever the graph gets."""
    for log, graph, forward, backward, step, start_ns in sql.rows(trace, _GRAPHS):
        for function in functions_of(trace, backward)[:1]:
            given = [node for name, node in function.nodes.items() if name.startswith(_GIVEN)]
            gradients = _GRADIENT.findall(function.text)
            ignoring = [name for name in gradients if _is_saved(function.nodes.get(name))]
            if given and ignoring:
                nodes = next((one.nodes for one in functions_of(trace, forward)), {})
                source = next(filter(None, (_line(nodes, name) for name in ignoring)), None)
                is_of_loss = all(node.sizes == () for node in given)
                if source is not None:
                    yield IgnoredGradient(log, graph, step, start_ns, len(ignoring), len(gradients), is_of_loss, source)


def _is_saved(node: Node | None) -> bool:
    """Return whether a gradient is what the forward graph has computed."""
    return node is not None and node.function == "placeholder" and not node.name.startswith(_GIVEN)


def _line(nodes: Nodes, name: str) -> SourceLine | None:
    """Return the last line of a method `backward` among those that compute a result of the forward graph."""
    waiting, seen = [name], set[str]()
    while waiting:
        node = nodes.get(waiting.pop(0))
        if node is None or node.name in seen:
            continue
        if node.source is not None and node.source.function == _BACKWARD:
            return node.source
        seen.add(node.name)
        waiting += node.operands
    return None
