"""Describes a convolution as one without its bias and an addition, where Inductor adds the bias in a kernel of its own.

It does so on every device but the CPU, and what the external convolution returns is then the value of no node. With a
node for it, the convolution and the kernel that adds the bias are judged one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stepscope.tracer.inductor.judge_record.nodes import without_bias
from stepscope.tracer.judge.record import Json, Node, members_of, node_of

CONVOLUTION = "op:aten.convolution.default"
BIAS = 2
"""Position of the bias among the arguments of the operator."""


def parts_of_convolution(buffer: Any, nodes: Mapping[str, Node]) -> list[Node]:
    """Return the nodes for the convolution whose result without its bias, the first node, a buffer holds; or none."""
    from torch._inductor import ir

    if not isinstance(buffer, (ir.ExternKernel, ir.TemplateBuffer)) or len(buffer.inputs) > BIAS:
        return []
    origins = [nodes[one.name] for one in buffer.origins if one.name in nodes]
    biased = [node for node in origins if node.target == CONVOLUTION and _bias(node) is not None]
    return _parts(biased[0]) if len(biased) == 1 else []


def _bias(node: Node) -> Json:
    arguments = members_of(node.args) or []
    return node_of(arguments[BIAS]) if len(arguments) > BIAS else None


def _parts(node: Node) -> list[Node]:
    """Return the convolution without its bias, the bias as a view, and their sum, which has the name of the node."""
    arguments = list(members_of(node.args) or [])
    bias, arguments[BIAS] = arguments[BIAS], None
    alone = replace(node, name=without_bias(node.name), args={"tuple": arguments})
    form: list[Json] = [node.size[1], *[1] * (len(node.size) - 2)]
    view = replace(
        node, name=f"{node.name}_bias", target="op:aten.view.default", args={"tuple": [bias, {"list": form}]},
        size=form, stride=None,
    )  # fmt: skip
    both: Json = {"tuple": [{"node": alone.name}, {"node": view.name}]}
    return [alone, view, replace(node, target="op:aten.add.Tensor", args=both, kwargs={"dict": {}})]
