"""Hides operations on tensors from the program's dispatch modes, which could count, change or fake them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_modes() -> Iterator[None]:
    """Disable dispatch modes, torch function modes and subclasses, and autograd; restore them afterwards."""
    import torch
    from torch.utils import _python_dispatch

    with torch._C.DisableTorchFunction(), torch.no_grad(), _python_dispatch._disable_current_modes():
        yield
