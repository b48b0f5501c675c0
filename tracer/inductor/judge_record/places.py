"""Finds the buffers that hold the values of FX nodes, from what each node was lowered to.

`GraphLowering.run_node` returns the IR of a node; after scheduling, `ir.as_storage_and_layout` names its buffer and
the part of it. Four kinds of buffers hold a value that is the IR of no node: parts of a concatenation, copies that
external kernels want in another layout, what an external kernel computed if a copy in another layout replaces it, and
the copy that replaces an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.tracer.inductor.judge_record.nodes import size, sizes, without_bias
from stepscope.tracer.judge.record import Buffer, Node, Place, members_of, node_of, nodes_in


def place_of(lowered: Any) -> Place | None:
    """Return where the value of an IR node is, or None if it is not in memory."""
    from torch._inductor import ir

    try:
        if not isinstance(lowered, ir.IRNode) or not ir.is_storage_and_layout(lowered):
            return None
        storage, layout = ir.as_storage_and_layout(lowered, freeze=False)
        if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
            real = layout.real_layout()
            return Place(storage.get_name(), sizes(real.size), sizes(real.stride), 0)
        return Place(storage.get_name(), sizes(layout.size), sizes(layout.stride), size(layout.offset))
    except (AttributeError, NotImplementedError, AssertionError):
        return None


def symbol_of(lowered: Any) -> str | None:
    """Return the number that a node was lowered to, as an expression, or None."""
    import sympy  # type: ignore[import-untyped]

    is_number = isinstance(lowered, (int, float, sympy.Basic)) and not isinstance(lowered, bool)
    return str(lowered) if is_number else None


def buffers_of(graph: Any) -> list[Buffer]:
    real = graph.scheduler.mutation_real_name
    return [_buffer(buffer, real) for buffer in graph.buffers if buffer.name is not None]


def _buffer(buffer: Any, real: Mapping[str, str]) -> Buffer:
    name = buffer.get_name()
    origin = getattr(buffer, "origin_node", None)
    origins = getattr(buffer, "origins", None) or ()
    mutates = list(buffer.get_mutation_names()) if hasattr(buffer, "get_mutation_names") else []
    return Buffer(
        name,
        real.get(name, name),
        type(buffer).__name__,
        type(getattr(buffer, "layout", None)).__name__,
        origin.name if origin is not None else None,
        [one.name for one in origins],
        mutates,
    )


def parts_of(graph: Any) -> dict[str, list[str]]:
    """Return the buffers that are written as parts of each concatenation."""
    from torch._inductor import ir

    return {
        buffer.get_name(): [part.get_name() for part in buffer.inputs if isinstance(part, ir.IRNode)]
        for buffer in graph.buffers
        if isinstance(buffer, ir.ConcatKernel)
    }


def further_places(graph: Any, nodes: Mapping[str, Node], places: Mapping[str, Place]) -> Iterator[tuple[str, Place]]:
    """Yield values that are in another buffer than the IR of their node, with that place."""
    from torch._inductor import ir

    seen = {id(buffer) for buffer in graph.buffers}
    for operation in [*graph.buffers, *(one for one in graph.operations if id(one) not in seen)]:
        if isinstance(operation, ir.ConcatKernel):
            yield from _parts(operation, nodes, places)
        elif isinstance(operation, ir.ExternKernel):
            yield from _operands_and_result(operation, nodes)


def _parts(kernel: Any, nodes: Mapping[str, Node], places: Mapping[str, Place]) -> Iterator[tuple[str, Place]]:
    found = [one.name for one in kernel.origins if nodes[one.name].target == "op:aten.cat.default"]
    own = [name for name in found if (place := places.get(name)) is not None and place.buffer == kernel.get_name()]
    for name in (own or found)[-1:]:
        members = members_of((members_of(nodes[name].args) or [None])[0]) or []
        if len(members) != len(kernel.inputs):
            return
        for member, part in zip(members, kernel.inputs, strict=True):
            node, place = node_of(member), place_of(part)
            if node is not None and place is not None:
                yield node, Place(place.buffer, place.size, place.stride, 0)


def _operands_and_result(kernel: Any, nodes: Mapping[str, Node]) -> Iterator[tuple[str, Place]]:
    from torch._inductor import ir

    origin = getattr(kernel, "origin_node", None)
    overload = getattr(kernel, "op_overload", None)
    origins = [origin] if origin is not None else [one for one in kernel.origins if one.target is overload]
    inputs = [one for one in getattr(kernel, "inputs", ()) if isinstance(one, ir.IRNode)]
    for one in origins:
        node = nodes.get(without_bias(one.name), nodes.get(one.name))
        if node is None:
            continue
        operands = [name for name in (*nodes_in(node.args), *nodes_in(node.kwargs)) if nodes[name].dtype is not None]
        if len(operands) != len(inputs):  # it computes something else
            continue
        known = list(zip(operands, inputs, strict=True))
        if len(origins) == 1:
            known.append((node.name, kernel))
        for name, given in known:
            place = place_of(given)
            if place is not None and place.size == nodes[name].size:
                yield name, place
