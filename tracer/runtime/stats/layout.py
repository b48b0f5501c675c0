"""Plans the walk over a strided tensor: merged dimensions, the order in memory, and the elements of a sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from torch import Tensor

from stepscope.tracer.runtime.stats.digest import order_of

Pairs = list[tuple[int, int]]
"""(size, stride) of each dimension in elements, outermost first, without dimensions of size 1."""


@dataclass(frozen=True)
class Layout:
    """The walk over one tensor."""

    memory: Pairs
    """Walk that visits each element in memory once, in memory order if possible; equal to `logical` for a sample."""
    logical: Pairs
    """Walk in row-major order, including repeated elements."""
    count: int
    """Number of elements that the walk over `memory` reads."""
    step: int
    """Distance in row-major order between elements of a sample; else 1."""
    weight: int
    """Number of times that each element in memory occurs in the tensor; expanded dimensions have stride 0."""
    order: int = 0
    """`digest.order_of` the walk over `memory`."""


def layout_of(tensor: Tensor, most_bytes: int) -> Layout:
    numel, itemsize = tensor.numel(), tensor.itemsize
    pairs = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    logical = collapse(pairs)
    if numel == 0:
        return Layout([], [], 0, 1, 1)
    weight = prod(size for size, stride in pairs if stride == 0)
    if numel // weight * itemsize > most_bytes:
        step = -(-numel * itemsize // max(most_bytes, itemsize))
        return Layout(logical, logical, -(-numel // step), step, 1)
    once = sorted((pair for pair in pairs if pair[1]), key=lambda pair: -pair[1])
    return Layout(collapse(once), logical, numel // weight, 1, weight, order_of(tensor.shape, tensor.stride()))


def collapse(pairs: Iterable[tuple[int, int]]) -> Pairs:
    """Merge neighbouring dimensions that one stride can walk."""
    out: Pairs = []
    for size, stride in pairs:
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return out
