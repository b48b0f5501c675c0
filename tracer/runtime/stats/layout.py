"""How a strided tensor is walked: dimensions put together, memory order, and what a sample takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

Pairs = list[tuple[int, int]]
"""(size, stride) in elements, outermost first; sizes of 1 are left out."""


@dataclass(frozen=True)
class Layout:
    """The walk over one tensor."""

    memory: Pairs
    """Each element of memory once, in memory order where strides allow it; of a sample: the same as `logical`."""
    logical: Pairs
    """Row-major order, repeated elements and all."""
    count: int
    """Elements that the walk over `memory` reads."""
    step: int
    """A sample: distance in row-major order of one element read to the next; else 1."""
    weight: int
    """How often each element of memory is in the tensor: expanded dimensions have stride 0."""


def layout_of(tensor: Tensor, most_bytes: int) -> Layout:
    numel, itemsize = tensor.numel(), tensor.itemsize
    pairs = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    logical = collapse(pairs)
    if numel == 0:
        return Layout([], [], 0, 1, 1)
    weight = 1
    for size, stride in pairs:
        weight *= size if stride == 0 else 1
    if numel // weight * itemsize > most_bytes:
        step = -(-numel * itemsize // max(most_bytes, itemsize))
        return Layout(logical, logical, -(-numel // step), step, 1)
    once = sorted((pair for pair in pairs if pair[1]), key=lambda pair: -pair[1])
    return Layout(collapse(once), logical, numel // weight, 1, weight)


def collapse(pairs: Iterable[tuple[int, int]]) -> Pairs:
    """Neighbours that one stride walks are one dimension."""
    out: Pairs = []
    for size, stride in pairs:
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return out
