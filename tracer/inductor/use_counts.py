"""Whether a tensor's memory has other owners: counts of references that torch keeps, read without changing them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from stepscope.tracer.inductor.modes import without_modes


def only_one_holds(value: Any) -> bool:
    """No other tensor has the memory of `value`, and neither autograd nor anything else in C++ has this tensor.

    Who has the Python object is not looked at. False for what is no tensor, and where torch does not say.
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
