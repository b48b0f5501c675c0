"""The compiler (here of PyTorch 2.13) writes the reversed sum in place, so that the second half reads elements of the
first half that have already changed.

$ stepscope run storage_overlap.py
critical: window (arg0_1) is overwritten while it is still read, by index, mul, index_put and 2 more fused into one
kernel (storage_overlap.py:16, 20, 17)
"""

import sys

import torch
from torch import Tensor


@torch.compile
def symmetric(window: Tensor) -> Tensor:
    window[torch.arange(len(window))] *= 0.5
    other = window.flip(0)
    if "--fixed" in sys.argv:
        return window + other
    return window.add_(other)


symmetric(torch.rand(64, 32))
