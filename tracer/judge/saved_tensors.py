"""Notices that tensors which a forward pass saved for its backward pass change before it, unseen by autograd."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from stepscope.tracer.judge.clones import why_not
from stepscope.tracer.judge.layer_rule import same_bits


class SavedTensors:
    """Copies of saved tensors, beside the tensors."""

    def __init__(self, saved: Iterable[Any], kept: Sequence[Any]) -> None:
        """Copy the tensors `saved` as they are now, unless one of the copies `kept` has the same contents."""
        copies: dict[object, list[Tensor]] = {}
        for one in kept:
            if isinstance(one, Tensor):
                copies.setdefault(_form(one), []).append(one)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for one in saved:
                if isinstance(one, Tensor) and why_not(one) is None and _has_memory(one):
                    now = one.detach()  # a saved output itself would keep the node that saves it
                    copy = next((one for one in copies.get(_form(now), []) if same_bits(one, now)), None)
                    self._pairs.append((now, now.clone() if copy is None else copy))

    def changed(self) -> int:
        """Return how many of the tensors have changed, and keep them no longer."""
        pairs, self._pairs = self._pairs, []
        with torch.no_grad():
            return sum(_has_memory(now) and not same_bits(was, now) for now, was in pairs)


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride()


def _has_memory(tensor: Tensor) -> bool:
    """Return whether the memory of a tensor is there, which FSDP frees between the passes."""
    if tensor.numel() == 0:
        return False
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= end
