"""Reads torch's reference counts of a tensor and its storage, to find out whether its memory has other owners."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from stepscope.tracer.inductor.modes import without_modes


def only_one_holds(value: Any) -> bool:
    """Return whether no other tensor shares the memory of `value`, and nothing in C++, like autograd, refers to it.

    References to the Python object are ignored. False if `value` is not a plain tensor, or torch has no such counts.
    """
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    try:
        return _counts(value) == _of_one()
    except (RuntimeError, NotImplementedError, AttributeError):
        return False


def _counts(value: Any) -> tuple[int, int]:
    import torch

    storage = value.untyped_storage()
    of_storage: Callable[[int], int] = torch._C._storage_Use_Count
    return value._use_count(), of_storage(storage._cdata)


@cache
def _of_one() -> tuple[int, int]:
    import torch

    with without_modes():
        return _counts(torch.empty(1, device="cpu"))
