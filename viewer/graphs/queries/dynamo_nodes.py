"""Queries the graphs of Dynamo, and reads the operations in their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from stepscope.viewer.graphs.queries.signatures import placeholders
from stepscope.viewer.graphs.rows import SourceLine, commented_lines
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_GRAPHS = """
    SELECT g.log, g.compile_id, min(g.graph) AS graph, max(d.record) AS record, min(c.step) AS step,
           min(c.start_ns) AS start_ns
    FROM graphs g JOIN records d ON d.log = g.log AND d.compile_id = g.compile_id AND d.event = 'dynamo_output_graph'
    JOIN (SELECT graph, arg_min(step, call) AS step, min(start_ns) AS start_ns FROM calls GROUP BY graph
          HAVING count(*) >= $1) c ON c.graph = g.graph
    GROUP BY g.log, g.compile_id ORDER BY g.log, graph
"""
_FORWARD = re.compile(r"^[ \t]*def forward\(", re.MULTILINE)
_STATEMENT = re.compile(r"\s+(\w+)(?:: \"([^\"]*)\")? = ([^;]+)")
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")
_CALLED = re.compile(r"(?<!\w)(\w+)\(")
_INDEX = re.compile(r"\w+(?:\[|\.m?T$)")
_OPERATOR = re.compile(r" (\*\*|//|[-+*/@%&|<>]) ")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?! ?=)")
"""A name other than that of an argument."""
_MOST_KEPT = 50
_RETURNED = re.compile(r"^[ \t]*return (.*)$", re.MULTILINE)


class DynamoGraph(NamedTuple):
    """The graph of Dynamo of a compile that has calls."""

    log: int
    compile_id: str
    graph: int
    """The first graph of the compile that was called."""
    record: int
    """The record with the text."""
    step: int
    """The step of the first call."""
    start_ns: int


def dynamo_graphs(trace: Trace, calls: int = 1) -> list[DynamoGraph]:
    """Return the graphs of Dynamo of which a part was called at least so many times."""
    return trace.once(_dynamo_graphs, calls)


def _dynamo_graphs(trace: Trace, calls: int) -> list[DynamoGraph]:
    return sql.records(DynamoGraph, trace, _GRAPHS, [calls])


@dataclass(frozen=True, slots=True)
class Node:
    """An input or an operation."""

    name: str
    dtype: str | None
    """Such as ``f32``; None if the graph does not state it."""
    sizes: tuple[str, ...] | None
    """None if the graph does not state them."""
    function: str
    operands: tuple[str, ...]
    text: str
    """The expression."""
    source: SourceLine | None


Nodes = Mapping[str, Node]


class Function(NamedTuple):
    """A function of a graph."""

    text: str
    nodes: Nodes
    """By name, in their order."""


def functions_of(trace: Trace, record: int) -> list[Function]:
    """Return the functions of the graph of Dynamo in a record. They are kept, because several queries read them."""
    return trace.once(_functions_of, record, most=_MOST_KEPT)


def _functions_of(trace: Trace, record: int) -> list[Function]:
    return functions(trace.payload(record).decode("utf-8", "replace"))


def functions(graph: str) -> list[Function]:
    """Return the functions in the text of a graph: its own, and those of its subgraphs."""
    starts = [found.start() for found in _FORWARD.finditer(graph)]
    texts = [graph[start:end] for start, end in pairwise([*starts, len(graph)])]
    return [Function(text, nodes_of(text)) for text in texts]


def nodes_of(function: str) -> Nodes:
    """Return the nodes in the text of a function by name, in their order."""
    nodes = {
        one.name: Node(one.name, *_tensor(one.annotation), "placeholder", (), "", None)
        for one in placeholders(function)
    }
    for line, source in commented_lines(function):
        found = _STATEMENT.match(line)
        if found is not None and found[1] not in nodes:  # each name has one value
            name, annotation, expression = found.groups()
            nodes[name] = _node(name, annotation or "", expression.strip(), source, nodes)
    return nodes


def returned(function: str) -> set[str]:
    """Return the names in the last return statement of a function."""
    found = _RETURNED.findall(function)
    return set(_NAME.findall(found[-1])) if found else set()


def _node(name: str, annotation: str, expression: str, source: SourceLine | None, known: Nodes) -> Node:
    if expression in known:  # another name of an input
        return replace(known[expression], name=name)
    called, operator = _CALLED.search(expression), _OPERATOR.search(expression)
    function = called[1] if called else operator[1] if operator else "other"
    operands = tuple(one for one in _NAME.findall(expression) if one in known)
    is_index = operands and _INDEX.match(expression) is not None
    return Node(name, *_tensor(annotation), "index" if is_index else function, operands, expression, source)


def _tensor(annotation: str) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the dtype and the sizes in an annotation such as ``f32[8, s27]``."""
    found = _TENSOR.match(annotation)
    return (found[1], tuple(size.strip() for size in found[2].split(",") if size)) if found else (None, None)
