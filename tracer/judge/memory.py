"""Tells a lack of memory from other errors, since the program goes on after it and the judge says so."""

from __future__ import annotations

from typing import Any

NO_MEMORY = "there was not enough memory to recompute it"


def is_out_of_memory(error: BaseException) -> bool:
    import torch

    text = str(error)
    is_cpu = isinstance(error, RuntimeError) and ("can't allocate memory" in text or "not enough memory" in text)
    return is_cpu or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def copy_if_possible(tensor: Any) -> Any | None:
    """Return a copy of what a launch is about to overwrite, or None if there is not enough memory for it."""
    try:
        return copied(tensor)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            return None
        raise


def copied(tensor: Any) -> Any:
    """Return a copy with the same sizes and strides, also of a tensor with gaps or overlaps."""
    found = tensor.clone()
    if found.stride() == tensor.stride() or tensor.numel() == 0:
        return found
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    whole = tensor.as_strided((extent,), (1,)).clone()
    return whole.as_strided(tensor.shape, tensor.stride(), 0)
