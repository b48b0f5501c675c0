"""Reads the operations in the text of a graph of Dynamo."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from stepscope.viewer.graphs.queries.signatures import placeholders
from stepscope.viewer.graphs.rows import SourceLine, commented_lines

_FORWARD = re.compile(r"^[ \t]*def forward\(", re.MULTILINE)
_STATEMENT = re.compile(r"\s+(\w+)(?:: \"([^\"]*)\")? = ([^;]+)")
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")
_CALLED = re.compile(r"(?<!\w)(\w+)\(")
_INDEX = re.compile(r"\w+(?:\[|\.m?T$)")
_OPERATOR = re.compile(r" (\*\*|//|[-+*/@%&|<>]) ")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?! ?=)")
"""A name other than that of an argument."""
_RETURNED = re.compile(r"^[ \t]*return (.*)$", re.MULTILINE)


@dataclass(frozen=True)
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


def functions(graph: str) -> Iterator[str]:
    """Yield the text of each function of a graph: its own, and those of its subgraphs."""
    starts = [found.start() for found in _FORWARD.finditer(graph)]
    for start, end in pairwise([*starts, len(graph)]):
        yield graph[start:end]


def nodes_of(function: str) -> Nodes:
    """Return the nodes of a function by name, in their order."""
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
