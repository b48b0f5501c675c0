"""Queries calls of functional dropout that stay active in inference, from the graphs of Dynamo."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.dynamo_nodes import Function, Node, dynamo_graphs, functions_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_PHASE = "SELECT phase FROM graphs WHERE graph = ?"
_BY_DEFAULT = re.compile(r"functional\.(\w*dropout\w*)\(\w+(?:, (?:p = )?[\d.e+-]+)?\)")
"""A call without `training`, which modules such as nn.Dropout pass."""


@dataclass(frozen=True)
class InferenceDropout:
    """A call of dropout without its argument `training` in a graph that computes no gradients."""

    log: int
    graph: int
    step: int
    """The step of the first call of the graph."""
    start_ns: int
    function: str
    """Such as ``dropout``."""
    source: SourceLine | None


def inference_dropouts(trace: Trace) -> Iterator[InferenceDropout]:
    """Yield the calls in the order of their graphs."""
    for of in dynamo_graphs(trace):
        if sql.row(trace, _PHASE, [of.graph]) == ("inference",):
            for node, function in active(functions_of(trace, of.record)):
                yield InferenceDropout(of.log, of.graph, of.step, of.start_ns, function, node.source)


def active(graph: Sequence[Function]) -> Iterator[tuple[Node, str]]:
    """Yield the calls in a graph of Dynamo that do not say whether the model trains, each with the name of
    the function."""
    for function in graph:
        for node in function.nodes.values():
            found = _BY_DEFAULT.search(node.text)
            if found is not None:
                yield node, found[1]
