"""Queries backward graphs with gradients that do not depend on the gradient which the graph gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from stepscope.viewer.graphs.queries.dynamo_nodes import Nodes, functions_of
from stepscope.viewer.graphs.queries.signatures import placeholders
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
_GRADIENT = re.compile(r"^[ \t]+(\w+),  # GradAOTOutput\(", re.MULTILINE)
_GIVEN = "tangents_"
_OF_ONE_NUMBER = re.compile(r"^\w+\[(?:1(?:, 1)*)?\]")
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
    """Whether the graph gets the gradient of a single number, among others."""
    source: SourceLine
    """The line in the `backward` of a torch.autograd.Function that computes the first of them."""


def ignored_gradients(trace: Trace) -> Iterator[IgnoredGradient]:
    """Yield one row for each such graph that was called, if a torch.autograd.Function computes the gradients: those of
    operators such as `round` are zero, whatever the graph gets."""
    for log, graph, forward, backward, step, start_ns in sql.rows(trace, _GRAPHS):
        text = trace.payload(backward).decode("utf-8", "replace")
        gradients = _GRADIENT.findall(text)
        inputs = {one.name: one.annotation for one in placeholders(text)} if gradients else {}
        given = [annotation for name, annotation in inputs.items() if name.startswith(_GIVEN)]
        ignoring = [name for name in gradients if name in inputs and not name.startswith(_GIVEN)]
        if given and ignoring:
            nodes = next((one.nodes for one in functions_of(trace, forward)), {})
            source = next(filter(None, (_line(nodes, name) for name in ignoring)), None)
            is_of_loss = any(map(_OF_ONE_NUMBER.search, given))
            if source is not None:
                yield IgnoredGradient(log, graph, step, start_ns, len(ignoring), len(gradients), is_of_loss, source)


def _line(nodes: Nodes, name: str) -> SourceLine | None:
    """Return the last line of a method `backward` among those that compute a result of the forward graph from tensors.
    Lines that make constants do not count: ones for the gradient of a loss that is added are there on purpose."""
    waiting, seen = [name], set[str]()
    while waiting:
        node = nodes.get(waiting.pop(0))
        if node is None or node.name in seen:
            continue
        if node.source is not None and node.source.function == _BACKWARD and node.operands:
            return node.source
        seen.add(node.name)
        waiting += node.operands
    return None
