"""Turns the nodes of an FX graph into plain data (`stepscope.tracer.judge.record`)."""

from __future__ import annotations

import base64
import re
from typing import Any

from stepscope.tracer.inductor.judge_record.patterns import with_operators
from stepscope.tracer.judge.record import Constant, Json, Node, Size
from stepscope.tracer.schema.process_ends import Frame

_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in ([^\n]*)(?:\n +([^\n]*))?')
_KINDS = {"placeholder": "input", "get_attr": "constant", "output": "output"}
_INT64 = range(-(2**63), 2**63)
MOST_CONSTANT_BYTES = 65_536


def plain_nodes(module: Any) -> tuple[list[Node], dict[str, Constant]]:
    """Return the nodes of a graph module, and its small constants by name."""
    nodes = with_operators([_node(node) for node in module.graph.nodes])
    names = {node.target for node in nodes if node.kind == "constant"}
    constants = {name: found for name in names if (found := _constant(_attribute(module, name))) is not None}
    return nodes, constants


def _node(node: Any) -> Node:
    value = node.meta.get("val")
    dtype, size, stride = _tensor(value)
    target = node.target if isinstance(node.target, str) else target_name(node.target)
    kind = _KINDS.get(node.op, "call")
    return Node(node.name, kind, target, plain(node.args), plain(node.kwargs), dtype, size, stride, _source(node))


def without_bias(name: str) -> str:
    """Return the name of the node for a convolution without its bias (`parts_of_convolution`)."""
    return f"{name}_without_bias"


def target_name(target: Any) -> str:
    """Return the name by which the judge finds a function again."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return f"op:{target}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads: list[str] = target.overloads()  # type: ignore[no-untyped-call]
        return f"op:{target}.{overloads[0]}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order:{target._name}"
    module = getattr(target, "__module__", "") or ""
    return f"function:{module.removeprefix('_')}.{getattr(target, '__qualname__', target)}"


def _tensor(value: Any) -> tuple[str | None, Size, Size | None]:
    import torch

    if not isinstance(value, torch.Tensor):
        return None, [], None
    stride = sizes(value.stride()) if value.layout == torch.strided else None
    return str(value.dtype).removeprefix("torch."), sizes(value.shape), stride


def sizes(values: Any) -> Size:
    """Return sizes or strides as integers, or as text if they have symbols."""
    return [size(value) for value in values]


def size(value: Any) -> int | str:
    try:
        is_number = isinstance(value, int) or bool(getattr(value, "is_Integer", False))
        return int(value) if is_number else str(value)
    except (TypeError, ValueError):
        return str(value)


def _source(node: Any) -> Frame | None:
    frames = _FRAME.findall(node.stack_trace or "")
    if not frames:
        return None
    file, line, function, code = frames[-1]
    return Frame(file, int(line), function, code.strip())


def plain(value: Any) -> Json:
    """Return an argument of a node as JSON."""
    import torch

    if value is None or isinstance(value, (bool, str)) or (isinstance(value, int) and value in _INT64):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [plain(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": {str(name): plain(one) for name, one in value.items()}}
    if isinstance(value, slice):
        return {"slice": [plain(value.start), plain(value.stop), plain(value.step)]}
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {"symbol": str(value)}
    for name in ("dtype", "device", "layout", "memory_format"):
        if isinstance(value, getattr(torch, name)):
            return {name: str(value).removeprefix("torch.")}
    return {"unknown": repr(value)[:200]}


def _attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def _constant(value: Any) -> Constant | None:
    import torch

    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        return None
    if value.layout != torch.strided or value.numel() * value.element_size() > MOST_CONSTANT_BYTES:
        return None
    if value.is_quantized or "Fake" in type(value).__name__:
        return None
    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return Constant(str(value.dtype).removeprefix("torch."), list(value.shape), base64.b64encode(raw).decode())
