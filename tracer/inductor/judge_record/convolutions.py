"""Describes a convolution as one without its bias and an addition, where Inductor adds the bias in a kernel of its own.

It does so on every device but the CPU, and what the external convolution returns is then the value of no node. With a
node for it, the convolution and the kernel that adds the bias are judged one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stepscope.tracer.inductor.judge_record.nodes import without_bias
from stepscope.tracer.inductor.judge_record.places import place_of
from stepscope.tracer.judge.record import Json, Node, Place, members_of, node_of

CONVOLUTION = "op:aten.convolution.default"
BIAS = 2
"""Position of the bias among the arguments of the operator."""


def split_convolutions(
    graph: Any, nodes: list[Node], places: Mapping[str, Place]
) -> tuple[list[Node], dict[str, Place]]:
    """Return the nodes with such convolutions split, and the places of the results without their bias."""
    from torch._inductor import ir

    biased = {node.name: node for node in nodes if node.target == CONVOLUTION and _bias(node) is not None}
    taken = {place.buffer for place in places.values()}
    parts: dict[str, list[Node]] = {}
    found: dict[str, Place] = {}
    for buffer in graph.buffers:
        is_kernel = isinstance(buffer, (ir.ExternKernel, ir.TemplateBuffer))
        if not is_kernel or buffer.get_name() in taken or len(buffer.inputs) > BIAS:
            continue
        names = [one.name for one in buffer.origins if one.name in biased]
        place = place_of(buffer)
        if len(names) == 1 and place is not None and place.size == biased[names[0]].size:
            parts[names[0]] = _parts(biased[names[0]])
            found[parts[names[0]][0].name] = place
    return [part for node in nodes for part in parts.get(node.name, [node])], found


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
