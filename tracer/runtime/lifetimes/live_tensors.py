"""Finds the tensors that are alive in Python, and counts them without keeping any of them alive."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Container
from typing import Any, NamedTuple


class TensorForm(NamedTuple):
    """What tensors of one group have in common."""

    dtype: str
    sizes: tuple[int, ...]
    device: str


class Count(NamedTuple):
    """The tensors of one form, each with memory of its own."""

    tensors: int
    storage_bytes: int
    with_graph: int
    """The number of those that autograd has computed, so that they keep a graph."""


def live_tensors(left_out: Container[int] = ()) -> dict[TensorForm, list[Any]]:
    """Return one tensor per storage, by form; of several tensors that share a storage, one that shows most of it.

    Storages of which the `id` of torch's object is in `left_out`, subclasses of tensors, nested tensors, and tensors
    without memory are left out. Tensors are found as referrers of their class; one that C++ holds as well may be
    missed, because some versions of torch hide the references of such a tensor from the garbage collector. The caller
    hides operations from the program's modes.
    """
    import torch

    kinds = torch.Tensor, torch.nn.Parameter
    largest: dict[int, tuple[int, Any, Any, TensorForm]] = {}
    for one in gc.get_referrers(*kinds):  # this is twice as fast as `get_objects`
        if type(one) not in kinds:
            continue
        try:
            if one.is_meta or one.is_nested:
                continue
            storage, size = one.untyped_storage(), one.nbytes
            key = id(storage)
            if key in left_out or not _has_memory(storage, size) or (key in largest and size <= largest[key][0]):
                continue
            form = TensorForm(str(one.dtype).removeprefix("torch."), tuple(one.size()), str(one.device))
        except (RuntimeError, AttributeError):  # sparse: no storage of its own
            continue
        largest[key] = size, one, storage, form
    groups: defaultdict[TensorForm, list[Any]] = defaultdict(list)
    for _, one, _, form in largest.values():
        groups[form].append(one)
    return groups


def _has_memory(storage: Any, size: object) -> bool:
    """Return whether a tensor has memory. The truth of a symbolic size would add a guard to what is being traced."""
    held = storage.nbytes()
    return type(size) is int and type(held) is int and held > 0


def storages(groups: dict[TensorForm, list[Any]]) -> frozenset[int]:
    """Return the addresses of torch's storages. A storage may get the address of one that has died."""
    return frozenset(int(one.untyped_storage()._cdata) for tensors in groups.values() for one in tensors)


def without(tensors: list[Any], old: Container[int]) -> list[Any]:
    """Return the tensors whose storages have other addresses than these."""
    return [one for one in tensors if int(one.untyped_storage()._cdata) not in old]


def counted(groups: dict[TensorForm, list[Any]]) -> dict[TensorForm, Count]:
    """Return the numbers of tensors and of their bytes."""
    return {
        form: Count(
            len(tensors),
            sum(one.untyped_storage().nbytes() for one in tensors),
            sum(one.requires_grad and not one.is_leaf for one in tensors),
        )
        for form, tensors in groups.items()
    }
