"""Describes a mean as a sum and a division where a kernel writes the sum to memory and the kernels that read it divide.

Inductor lowers a mean to both, and the sum is the value of no node. With a node for it, the kernel that writes it and
those that read it are judged one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepscope.tracer.inductor.judge_record.places import place_of
from stepscope.tracer.judge.record import Json, Node, Place, members_of, node_of

MEANS = ("op:aten.mean.dim", "op:aten.mean.default")


def split_means(graph: Any, nodes: list[Node], places: Mapping[str, Place]) -> tuple[list[Node], dict[str, Place]]:
    """Return the nodes with such means split, and the places of the sums."""
    from torch._inductor import ir

    by_name = {node.name: node for node in nodes}
    order = {node.name: number for number, node in enumerate(nodes)}
    taken = {place.buffer for place in places.values()}
    parts: dict[str, list[Node]] = {}
    sums: dict[str, Place] = {}
    for buffer in graph.buffers:
        data = getattr(buffer, "data", None)
        if not isinstance(data, ir.Reduction) or data.reduction_type != "sum" or buffer.get_name() in taken:
            continue
        names = [one.name for one in buffer.origins if one.name in by_name]
        mean = by_name[max(names, key=order.__getitem__)] if names else None
        place = place_of(buffer)
        if mean is None or mean.target not in MEANS or place is None or place.size != mean.size:
            continue
        found = list(_parts(mean, by_name, str(buffer.get_dtype()).removeprefix("torch.")))
        if found:
            parts[mean.name] = found
            sums[found[0].name] = place
    return [part for node in nodes for part in parts.get(node.name, [node])], sums


def _parts(mean: Node, nodes: Mapping[str, Node], dtype: str) -> Iterator[Node]:
    """Yield the sum, the division, and the rounding to the dtype of the mean; the last one has its name."""
    arguments: list[Json] = members_of(mean.args) or []
    operand = nodes.get(node_of(arguments[0]) or "") if arguments else None
    if operand is None:
        return
    sizes = operand.size
    dims = members_of(arguments[1]) if len(arguments) > 1 else None
    over = [sizes[one] for one in dims] if dims else sizes
    count: Json = " * ".join(f"({one})" for one in over) or "1"
    rest = arguments[1:] if dims else [{"list": []}]
    total = Node(
        f"{mean.name}_sum", "call", "op:aten.sum.dim_IntList", {"tuple": [arguments[0], *rest]},
        {"dict": {"dtype": {"dtype": dtype}}}, dtype, mean.size, mean.stride, mean.source,
    )  # fmt: skip
    yield total
    divided = replace(
        mean, target="op:aten.div.Scalar", args={"tuple": [{"node": total.name}, {"symbol": count}]},
        kwargs={"dict": {}},
    )  # fmt: skip
    if mean.dtype == dtype:
        yield divided
        return
    yield replace(divided, name=f"{mean.name}_quotient", dtype=dtype)
    yield replace(
        mean, target="op:prims.convert_element_type.default", kwargs={"dict": {}},
        args={"tuple": [{"node": f"{mean.name}_quotient"}, {"dtype": mean.dtype}]},
    )  # fmt: skip
