"""Keeps the graphs that Dynamo captures in this process, with the source lines that their nodes come from.

A graph from a compile cache has the lines that it was compiled from: those of an earlier version of the program, or
of another program. Dynamo runs on warm caches too, so its graph gives the current lines.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepscope.tracer.inductor.sources.fx_nodes import module_paths
from stepscope.tracer.schema.constants import DEFAULT_DEVICE
from stepscope.tracer.schema.process_ends import Frame

Stack = tuple[Frame, ...]
FRAME = re.compile(r'^ *File "([^"\n]*)", line (\d+), in ([^\n]*)(?:\n(?! *File ")([^\n]*))?', re.M)
MOST_KEPT = 512
"""Maximum number of graphs that are kept; a backward may be loaded long after its graph was captured."""


@dataclass(frozen=True)
class CompiledLines:
    """The nodes of a compiled graph by the source lines that they came from."""

    shape: str
    nodes_of: dict[str, list[int]]
    """Positions of the nodes that have a stack, by the stack's digest."""
    unix_ns: int

    def nodes(self, stack: Stack) -> list[int]:
        """Return the positions of the nodes with this stack; empty if none has it."""
        return self.nodes_of.get(digest(stack), [])


@dataclass(frozen=True)
class Captured:
    """One graph of Dynamo's, with its subgraphs."""

    shape: str
    """Digest of each node's operation and inputs; the nodes of graphs with the same digest correspond in order."""
    stacks: list[Stack]
    """Stack of each node; empty if it has none."""
    modules: frozenset[str]

    def to_keep(self) -> CompiledLines:
        """Return what later runs need to map the lines of this graph when they load it from a cache."""
        nodes_of: dict[str, list[int]] = {}
        for position, stack in enumerate(self.stacks):
            if stack:
                nodes_of.setdefault(digest(stack), []).append(position)
        return CompiledLines(self.shape, nodes_of, time.time_ns())


class DynamoGraphs:
    """The last graph that was captured for each compile id."""

    def __init__(self) -> None:
        self._captured: dict[str, Captured] = {}

    def take(self, compile_id: str | None, module: Any) -> None:
        """Keep the graph `module`, which Dynamo is about to pass to a backend; ignore it without a compile id."""
        if compile_id is not None:
            self._captured.pop(compile_id, None)
            self._captured[compile_id] = captured(module)
            while len(self._captured) > MOST_KEPT:
                self._captured.pop(next(iter(self._captured)))

    def of(self, compile_id: str | None) -> Captured | None:
        """Return the graph of a compile; None if it was captured before the recording began, or without Dynamo."""
        return self._captured.get(compile_id or "")


def digest(stack: Stack) -> str:
    lines = "\n".join(f"{frame.file}:{frame.line} {frame.function} {frame.code}" for frame in stack)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse_stack(text: str) -> Stack:
    """Return the frames of a stack trace, outermost first. Text before the first frame is ignored, as are the frames of
    torch through which all operators pass if there is a default device."""
    return tuple(
        Frame(file, int(line), name.strip(), (code or "").strip())
        for file, line, name, code in FRAME.findall(text)
        if not file.endswith(DEFAULT_DEVICE)
    )


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
    """Return what a node calls, the same for ``x.log()`` and ``torch.log(x)``, without names that the program chose."""
    if node.op in ("call_method", "call_function"):
        return str(getattr(node.target, "__name__", node.target))
    return str(node.op)
