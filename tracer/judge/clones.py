"""Clones the inputs of a graph with the memory that they share, so that the graph can run again beside the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_PLAIN = (bool, int, float, complex, str, type(None), torch.SymInt, torch.SymFloat, torch.SymBool, torch.dtype)
_PLAIN_TENSORS = (Tensor, torch.nn.Parameter)


class NotComparable(Exception):
    """Raised if a call cannot be run again; its text is a clause that says why."""


class _Fresh(torch.autograd.Function):
    """Gives a tensor that was computed from a leaf, so that the graph may change it in place."""

    @staticmethod
    def forward(context: Any, leaf: Tensor, value: Tensor) -> Tensor:
        del context, leaf  # an argument that is returned as it is would be a view, which may not be changed in place
        return _over(value.untyped_storage(), value, value.storage_offset(), value.shape, value.stride())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        del context
        return gradients[0], None


class Clones:
    """Clones of the inputs of one call. Inputs that share memory have clones that share memory."""

    def __init__(self, values: list[Any], leaves: list[Tensor | None]) -> None:
        self.values = values
        self.leaves = leaves
        """The tensor with respect to which the gradient of each input is taken; None for inputs without one."""


def why_not(value: Any) -> str | None:
    """Return why an input cannot be cloned, as a clause, or None if it can."""
    if not isinstance(value, Tensor):
        return None if isinstance(value, _PLAIN) else f"an input is a {type(value).__name__}"
    if type(value) not in _PLAIN_TENSORS:
        return f"an input is a tensor of the subclass {type(value).__name__}"
    if value.layout is not torch.strided:
        return f"an input has the layout {value.layout}"
    if value.is_quantized:
        return "an input is quantized"
    if value.is_conj() or value.is_neg():
        return "an input is a lazily conjugated or negated view"
    return "an input has no data" if value.device.type == "meta" else None


def copies(values: Sequence[Any], dtype_of: dict[torch.dtype, torch.dtype] | None = None) -> list[Any]:
    """Return copies with the same strides and shared memory, without gradients; `dtype_of` may change dtypes.

    Raises NotComparable for what `why_not` names, and for memory that several dtypes share.
    """
    for value in values:
        if (why := why_not(value)) is not None:
            raise NotComparable(why)
    groups: defaultdict[object, dict[int, Tensor]] = defaultdict(dict)
    for value in values:
        if isinstance(value, Tensor):
            groups[_memory(value)][id(value)] = value
    copied: dict[int, Tensor] = {}
    with torch.no_grad():
        for group in groups.values():
            copied |= _copied(group, dtype_of or {})
    return [copied[id(value)] if isinstance(value, Tensor) else value for value in values]


def with_gradients(values: Sequence[Any], like: Sequence[Any]) -> Clones:
    """Return the copies `values` with gradients wherever `like`, the inputs or what is known of them, has them."""
    leaves: list[Tensor | None] = []
    ready: list[Any] = []
    done: dict[int, tuple[Any, Tensor | None]] = {}
    for value, original in zip(values, like, strict=True):
        if id(value) not in done:
            done[id(value)] = _with_gradient(value, original)
        fresh, leaf = done[id(value)]
        ready.append(fresh)
        leaves.append(leaf)
    return Clones(ready, leaves)


def share_memory(one: Tensor, other: Tensor) -> bool:
    return one.numel() > 0 and other.numel() > 0 and _memory(one) == _memory(other)


def _with_gradient(value: Any, original: Any) -> tuple[Any, Tensor | None]:
    if original is None or not original.requires_grad:
        return value, None
    if original.is_leaf:
        leaf = value.requires_grad_()
        return leaf, leaf
    leaf = value.detach().requires_grad_()
    with torch.enable_grad():
        return _Fresh.apply(leaf, value), leaf  # type: ignore[no-untyped-call]


def _memory(tensor: Tensor) -> object:
    address = tensor.untyped_storage().data_ptr()
    return (tensor.device, address) if address else id(tensor)


def _copied(group: dict[int, Tensor], dtype_of: dict[torch.dtype, torch.dtype]) -> dict[int, Tensor]:
    tensors = list(group.values())
    first = tensors[0]
    dtype = dtype_of.get(first.dtype, first.dtype)
    if len(tensors) == 1 and _is_dense(first):
        made = torch.empty_strided(first.shape, first.stride(), dtype=dtype, device=first.device)
        return {id(first): made.copy_(first.detach())}
    if any(tensor.dtype != first.dtype for tensor in tensors):
        raise NotComparable("two inputs share memory with different dtypes")
    begin = min(tensor.storage_offset() for tensor in tensors)
    end = max(tensor.storage_offset() + _extent(tensor) for tensor in tensors)
    flat = _over(first.untyped_storage(), first, begin, (end - begin,), (1,)).to(dtype, copy=True)
    return {
        key: _over(flat.untyped_storage(), flat, tensor.storage_offset() - begin, tensor.shape, tensor.stride())
        for key, tensor in group.items()
    }


def _over(storage: Any, like: Tensor, offset: Any, size: Sequence[Any], stride: Sequence[int]) -> Tensor:
    return torch.empty(0, dtype=like.dtype, device=like.device).set_(storage, offset, tuple(size), tuple(stride))


def _extent(tensor: Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _is_dense(tensor: Tensor) -> bool:
    return tensor.numel() == 0 or _extent(tensor) == tensor.numel()
