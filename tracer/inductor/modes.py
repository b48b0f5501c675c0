"""Work on tensors that no mode of the program sees: dispatch modes count, change or fake what runs under them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_modes() -> Iterator[None]:
    """No dispatch mode, no torch function mode or subclass, no autograd; all of them are as before afterwards."""
    import torch
    from torch.utils import _python_dispatch

    with torch._C.DisableTorchFunction(), torch.no_grad(), _python_dispatch._disable_current_modes():
        yield
