"""Keeps a graph as Dynamo captured it, so that it can run in eager mode beside the compiled code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.sources.dynamo_graphs import parse_stack
from stepscope.tracer.schema.process_ends import Frame

_LOCAL = re.compile(r"""\bL\[(['"])(.*?)\1\]""")
_IN_PLACE = re.compile(r"[a-z0-9]_$")


@dataclass(frozen=True)
class CapturedGraph:
    module: GraphModule
    """The graph as it was before the backend changed it."""
    compile_id: str | None
    frame: Frame | None
    """The function that was captured."""
    inputs: list[str]
    """The names that the program gives to the inputs."""
    input_lines: list[Frame | None]
    """The line that changes each input; None if none seems to."""
    output_lines: list[Frame | None]
    """The line that computes each output."""
    eps: float
    """The largest eps of a floating-point dtype of the graph."""
    draws_alike: bool
    """Whether compiled code draws the same random numbers as eager code."""
    obstacle: str | None
    """Why the graph cannot run twice, as a clause; None if it can."""


def keep(output_graph: Any, module: GraphModule) -> CapturedGraph:
    """Return a copy of `module`, which Dynamo's `output_graph` is about to pass to a backend."""
    nodes = list(module.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    output = next(node for node in reversed(nodes) if node.op == "output")
    code = output_graph.root_tx.f_code
    return CapturedGraph(
        module=copied(module),
        compile_id=compat.current_compile_id(),
        frame=Frame(code.co_filename, code.co_firstlineno, code.co_name, ""),
        inputs=[_name(node) for node in placeholders],
        input_lines=[_changing_line(node) for node in placeholders],
        output_lines=[_changing_line(value) or _line(value) for value in output.args[0]],
        eps=max(map(_eps, nodes), default=torch.finfo(torch.float32).eps),
        draws_alike=_draws_alike(output_graph.compiler_fn),
        obstacle=next((why for node in _all_nodes(module) if (why := _obstacle(node)) is not None), None),
    )


def copied(module: GraphModule) -> GraphModule:
    """Return a copy of a graph and of its subgraphs that shares their parameters."""
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    made = GraphModule(module, graph)
    for name, child in module.named_children():
        if isinstance(child, GraphModule):
            setattr(made, name, copied(child))
    return made


def _draws_alike(backend: Any) -> bool:
    from torch._inductor import config

    return bool(config.fallback_random) or getattr(backend, "compiler_name", "inductor") != "inductor"


def _name(node: Any) -> str:
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None)
    text = name() if callable(name) else name
    return _LOCAL.sub(r"\2", str(text)) if text else str(node.name)


def _line(value: Any) -> Frame | None:
    meta = getattr(value, "meta", None) or {}
    stack = parse_stack(str(meta.get("stack_trace") or ""))
    return stack[-1] if stack else None


def _changing_line(node: Any) -> Frame | None:
    """Return the line that changes an input last; None for other nodes, and if none seems to change it."""
    if getattr(node, "op", None) != "placeholder":
        return None
    changing = [user for user in node.users if _IN_PLACE.search(str(getattr(user.target, "__name__", user.target)))]
    return _line(changing[-1]) if changing else None


def _eps(node: Any) -> float:
    value = node.meta.get("example_value")
    found = [one.dtype for one in (value if isinstance(value, tuple | list) else [value]) if _is_inexact(one)]
    return max((torch.finfo(dtype).eps for dtype in found), default=0.0)


def _is_inexact(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _all_nodes(module: GraphModule) -> list[Any]:
    return [node for part in module.modules() if isinstance(part, GraphModule) for node in part.graph.nodes]


def _obstacle(node: Any) -> str | None:
    target = node.target
    if node.op != "call_function":
        return None
    if "c10d" in str(target) or str(getattr(target, "__module__", "")).startswith("torch.distributed"):
        return "the graph has a collective, in which the other ranks would have to take part again"
    return "the graph prints" if str(target) == "print" else None
