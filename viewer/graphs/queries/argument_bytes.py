"""Computes how many bytes the tensor arguments of a launch have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from stepscope.viewer.graphs.rows import ArgumentRow
from stepscope.viewer.kernel_source.access_bounds import item_bytes


def argument_bytes(arguments: Iterable[ArgumentRow]) -> tuple[int | None, int | None]:
    """Return the bytes of the tensors that a launch reads, and of those that it writes; None if a shape is unknown."""
    read: list[int | None] = []
    written: list[int | None] = []
    for argument in arguments:
        sizes = [tensor_bytes(tensor) for tensor in argument.tensors] or [None]
        read += sizes if argument.role != "out" else []
        written += sizes if argument.role != "in" else []
    return _sum(read), _sum(written)


def tensor_bytes(tensor: Mapping[str, Any]) -> int | None:
    """Return the bytes of the distinct elements of a tensor: an expanded dimension repeats the same ones."""
    size, stride, dtype = tensor["size"], tensor["stride"], tensor["dtype"]
    if size is None or dtype is None or any(not isinstance(n, int) for n in size):
        return None
    steps = stride if stride is not None and len(stride) == len(size) else [1] * len(size)
    elements: int = prod(n if step else min(n, 1) for n, step in zip(size, steps, strict=True))
    return elements * item_bytes(dtype)


def _sum(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
