"""The graphs that Dynamo captures in this process, and the lines of the program that their nodes come from.

A graph out of a compile cache brings along the lines that it was compiled from: of an earlier text of the program, or
of another program. Dynamo runs on warm caches too; what it has captured says which lines the graph is of now.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepscope.tracer.inductor.sources.module_paths import module_paths
from stepscope.tracer.schema.records import Frame

Stack = tuple[Frame, ...]
FRAME = re.compile(r'^ *File "([^"\n]*)", line (\d+), in ([^\n]*)(?:\n(?! *File ")([^\n]*))?', re.M)
MOST_KEPT = 512
"""A backward may be loaded long after its graph was captured."""


@dataclass(frozen=True)
class CompiledLines:
    """Which nodes of the graph that was compiled came from which lines."""

    shape: str
    nodes_of: dict[str, list[int]]
    """Digest of a stack -> positions of the nodes that have it."""
    unix_ns: int

    def nodes(self, stack: Stack) -> list[int]:
        """Empty: no node had this stack."""
        return self.nodes_of.get(digest(stack), [])


@dataclass(frozen=True)
class Captured:
    """One graph of Dynamo's, with the graphs in it."""

    shape: str
    """A digest of what each node does with which others: the nodes of graphs with the same one correspond in order."""
    stacks: list[Stack]
    """Of each node; empty where it has none."""
    modules: frozenset[str]

    def to_keep(self) -> CompiledLines:
        """For runs that find in a cache what is compiled from this graph now."""
        nodes_of: dict[str, list[int]] = {}
        for position, stack in enumerate(self.stacks):
            if stack:
                nodes_of.setdefault(digest(stack), []).append(position)
        return CompiledLines(self.shape, nodes_of, time.time_ns())


class DynamoGraphs:
    """What was captured last under each compile id."""

    def __init__(self) -> None:
        self._captured: dict[str, Captured] = {}

    def take(self, compile_id: str | None, module: Any) -> None:
        """`module`: the graph module that Dynamo is about to hand to a backend."""
        if compile_id is not None:
            self._captured.pop(compile_id, None)
            self._captured[compile_id] = captured(module)
            while len(self._captured) > MOST_KEPT:
                self._captured.pop(next(iter(self._captured)))

    def of(self, compile_id: str | None) -> Captured | None:
        """None: the graph was captured before the recording began, or without Dynamo."""
        return self._captured.get(compile_id or "")


def digest(stack: Stack) -> str:
    lines = "\n".join(f"{frame.file}:{frame.line} {frame.function} {frame.code}" for frame in stack)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse_stack(text: str) -> Stack:
    """The frames of a stack trace as text, outermost first. Before them may stand what the node is for."""
    return tuple(Frame(f, int(line), name.strip(), (code or "").strip()) for f, line, name, code in FRAME.findall(text))


def captured(module: Any) -> Captured:
    nodes = list(_nodes(module))
    number = {node: position for position, node in enumerate(nodes)}
    shape = hashlib.sha256()
    for node in nodes:
        inputs = [number[one] for one in node.all_input_nodes if one in number]
        shape.update(f"{_does(node)} {inputs}\n".encode())
    parsed = {text: parse_stack(text) for text in dict.fromkeys(map(_stack_trace, nodes))}
    stacks = [parsed[_stack_trace(node)] for node in nodes]
    return Captured(shape.hexdigest(), stacks, frozenset(module_paths(nodes)))


def _stack_trace(node: Any) -> str:
    return str(node.meta.get("stack_trace") or "")


def _nodes(module: Any) -> Iterator[Any]:
    from torch.fx import GraphModule

    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from part.graph.nodes


def _does(node: Any) -> str:
    """What it calls, however that is written (``x.log()`` as ``torch.log(x)``); no names that the program chose."""
    if node.op in ("call_method", "call_function"):
        return str(getattr(node.target, "__name__", node.target))
    return str(node.op)
