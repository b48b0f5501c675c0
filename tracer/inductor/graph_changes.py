"""Says what passes changed in a graph: its nodes as text, and the lines of the program from which they come."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from stepscope.tracer.inductor.sources.dynamo_graphs import parse_stack
from stepscope.tracer.schema.process_ends import Frame

MOST_LINES = 60
MOST_FRAMES = 8
_NAMES = "before", "after"
_TORCH = f"{Path(torch.__file__).parent}/"
_ENDS = "placeholder", "output"
_USERS = re.compile(r" : \[num_users=\d+\] = ")
_SAME_VALUE = frozenset(
    f"{name}.default" for name in ("alias", "detach", "clone", "view", "reshape", "_unsafe_view", "lift_fresh_copy")
)
"""Operators that passes remove or exchange all the time."""


def lines_of(graph: GraphModule) -> list[str]:
    """Return the nodes of a graph as text, one per line. How often a node is used is no change of it."""
    return [_text(node) for node in graph.graph.nodes]


def changed_lines(before: GraphModule | None, after: GraphModule) -> list[str]:
    """Return the nodes that differ as a unified diff; the graph itself if there is no other, or no node differs."""
    new = lines_of(after)
    diff = [] if before is None else list(difflib.unified_diff(lines_of(before), new, *_NAMES, n=2, lineterm=""))
    return (diff or new)[:MOST_LINES]


@dataclass(frozen=True)
class Change:
    """Nodes that differ. The most telling are those that compute something else now; then come those that are gone or
    new, and at last those that only hand a value on, or read what is gone."""

    nodes: list[str] = field(default_factory=list)
    """The most telling of them, as lines of a diff."""
    frames: list[Frame] = field(default_factory=list)
    """The lines of the program from which they come."""


def change_of(before: GraphModule, after: GraphModule) -> Change:
    """Return what is most telling of what differs."""
    changed = sorted(_changed(before, after), key=lambda one: one[0])
    frames = dict.fromkeys(frame for _, node, _ in changed if (frame := _frame(node)) is not None)
    best = [line for rank, _, lines in changed for line in lines if rank == changed[0][0]]
    told = [next((line for line in best if line.startswith(sign)), None) for sign in "-+"]
    return Change([line for line in told if line is not None], list(frames)[:MOST_FRAMES])


def _changed(before: GraphModule, after: GraphModule) -> Iterator[tuple[int, Node, list[str]]]:
    """Yield the nodes that differ, each with its rank and its lines of a diff."""
    old, new = ({node.name: node for node in graph.graph.nodes} for graph in (before, after))
    for name, node in old.items():
        other = new.get(name)
        if node.op in _ENDS:
            continue
        if other is None:
            yield 2 if _hands_on(node) else 1, node, [f"-{_text(node)}"]
        elif _computes(node) != _computes(other):
            reads_what_is_gone = node.target == other.target and not new.keys() >= _reads(node)
            lines = [f"-{_text(node)}", f"+{_text(other)}"]
            yield 2 if reads_what_is_gone else 0, other if _frame(other) is not None else node, lines
    for name, node in new.items():
        if name not in old and node.op not in _ENDS:
            yield 2 if _hands_on(node) else 1, node, [f"+{_text(node)}"]


def _computes(node: Node) -> tuple[Any, str]:
    """Return what a node computes, of which values."""
    return node.target, str(map_arg((node.args, node.kwargs), lambda one: _given(one).name))


def _reads(node: Node) -> set[str]:
    return {_given(one).name for one in node.all_input_nodes}


def _given(value: Node) -> Node:
    """Return the value that others only hand on."""
    while _hands_on(value) and isinstance(value.args[0], Node):
        value = value.args[0]
    return value


def _hands_on(node: Node) -> bool:
    return str(node.target).removeprefix("aten.") in _SAME_VALUE and bool(node.args)


def _frame(node: Node) -> Frame | None:
    """Return the innermost line that is not one of torch itself, as a transform has."""
    stack = parse_stack(str(node.meta.get("stack_trace") or ""))
    return next((frame for frame in reversed(stack) if not frame.file.startswith(_TORCH)), None)


def _text(node: Node) -> str:
    return _USERS.sub(" = ", node.format_node() or f"output {node.args}", count=1)
