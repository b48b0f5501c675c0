"""Describes a mean as a sum and a division where a kernel writes the sum to memory and the kernels that read it divide.

Inductor lowers a mean to both, and the sum is the value of no node. With a node for it, the kernel that writes it and
those that read it are judged one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepscope.tracer.judge.record import Json, Node, members_of, node_of

MEANS = ("op:aten.mean.dim", "op:aten.mean.default")


def parts_of_mean(buffer: Any, nodes: dict[str, Node]) -> list[Node]:
    """Return the nodes for the mean whose sum a buffer holds: the sum first; none if it holds no sum of a mean."""
    from torch._inductor import ir

    data = getattr(buffer, "data", None)
    if not isinstance(data, ir.Reduction) or data.reduction_type != "sum":
        return []
    origins = {one.name for one in buffer.origins}
    last = next((node for node in reversed(nodes.values()) if node.name in origins), None)
    if last is None or last.target not in MEANS:
        return []
    return list(_parts(last, nodes, str(buffer.get_dtype()).removeprefix("torch.")))


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
