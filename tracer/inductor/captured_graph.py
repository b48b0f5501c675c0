"""Keeps a graph as Dynamo captured it, so that it can run in eager mode beside the compiled code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.multiprocessing.reductions import StorageWeakRef

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.sources.dynamo_graphs import parse_stack
from stepscope.tracer.inductor.stats_toolchain import stands_for_another
from stepscope.tracer.schema.process_ends import Frame

TRANSFORMS = "the graph applies a transform of torch.func, such as vmap or grad"
"""The obstacle that only Dynamo's graph has, and not the graph that AOTAutograd makes of it."""
_LOCAL = re.compile(r"""\bL\[(['"])(.*?)\1\]""")
_IN_PLACE = re.compile(r"[a-z0-9]_$|^setitem$|^i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift)$")
"""Names of methods and functions that change their first argument."""


@dataclass(frozen=True)
class CapturedGraph:
    module: GraphModule
    """The graph as it was before the backend changed it, with its own tensors as further inputs."""
    own_tensors: list[torch.Tensor]
    """The tensors that the graph itself holds, such as those of an optimizer; the last inputs of `module`."""
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
    made = copied(module)
    own_tensors = _lifted(made)
    nodes = list(made.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    output = next(node for node in reversed(nodes) if node.op == "output")
    code = output_graph.root_tx.f_code
    return CapturedGraph(
        module=made,
        own_tensors=own_tensors,
        compile_id=compat.current_compile_id(),
        frame=Frame(code.co_filename, code.co_firstlineno, code.co_name, ""),
        inputs=[_name(node) for node in placeholders],
        input_lines=[_changing_line(node) for node in placeholders],
        output_lines=[_changing_line(value) or _line(value) for value in output.args[0]],
        eps=max(map(_eps, nodes), default=torch.finfo(torch.float32).eps),
        draws_alike=_draws_alike(output_graph.compiler_fn),
        obstacle=next((why for node in _all_nodes(made) if (why := _obstacle(node)) is not None), None),
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


def _lifted(module: GraphModule) -> list[torch.Tensor]:
    """Make an input of each tensor that the graph holds, so that a run on copies cannot change it; return them."""
    found: dict[int, tuple[torch.Tensor, Any]] = {}
    last = next((node for node in reversed(module.graph.nodes) if node.op == "placeholder"), None)
    for node in list(module.graph.nodes):
        value = _attribute(node)
        if not isinstance(value, torch.Tensor):
            continue
        if id(value) not in found:
            first = next(iter(module.graph.nodes))
            with module.graph.inserting_after(last) if last is not None else module.graph.inserting_before(first):
                last = module.graph.placeholder(str(node.target).replace(".", "_"))
            last.meta = dict(node.meta)
            found[id(value)] = value, last
        node.replace_all_uses_with(found[id(value)][1])
        module.graph.erase_node(node)
    module.recompile()
    return [value for value, _ in found.values()]


def _attribute(node: Any) -> Any:
    """Return what a node takes from the graph's module; None for other nodes."""
    if node.op != "get_attr":
        return None
    value = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


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
    """Return the line that changes an input last; None for other nodes, and if none seems to change it.

    If no node changes the input itself, one changes what shares its memory, or may be the input as its form is the
    same: an operator such as dropout returns what it was given if it has nothing to do.
    """
    if getattr(node, "op", None) != "placeholder":
        return None
    changing = [user for user in node.users if _changes(user)]
    if not changing:
        likely, waiting = {node}, [node]
        while waiting:
            members = {user for user in waiting.pop().users if _may_be(user, node)} - likely
            likely |= members
            waiting += members
        changing = [one for one in node.graph.nodes if one in likely and _changes(one)]
    return _line(changing[-1]) if changing else None


def _changes(node: Any) -> bool:
    return bool(_IN_PLACE.search(str(getattr(node.target, "__name__", node.target))))


def _may_be(node: Any, given: Any) -> bool:
    """Return whether a value may be an input of the graph or a view of it."""
    one, other = (each.meta.get("example_value") for each in (node, given))
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if any(each.layout != torch.strided or stands_for_another(each) for each in (one, other)):
        return False
    forms = [(each.dtype, each.shape, each.stride()) for each in (one, other)]
    memory = [StorageWeakRef(each.untyped_storage()) for each in (one, other)]  # type: ignore[no-untyped-call]
    return forms[0] == forms[1] or memory[0] == memory[1]


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
    if node.op == "call_module" or isinstance(_attribute(node), torch.Tensor):
        return "a part of the graph has tensors of its own"
    if node.op != "call_function":
        return None
    # An exception would leave the program inside of the transform, and a second forward mode may crash.
    if str(getattr(target, "__name__", "")).endswith("_increment_nesting"):
        return TRANSFORMS
    if "c10d" in str(target) or str(getattr(target, "__module__", "")).startswith("torch.distributed"):
        return "the graph has a collective, in which the other ranks would have to take part again"
    return "the graph prints" if str(target) == "print" else None
