"""The operator writes its results into the signal that it still reads, so that it smooths numbers that are already
smoothed.

$ stepscope run storage_overlap.py
warning: signal (arg0_1) may be overwritten while it is still read, by smooth (storage_overlap.py:28)
"""

import sys

import torch
from torch import Tensor


@torch.library.custom_op("example::smooth", mutates_args=["out"])
def smooth(x: Tensor, out: Tensor) -> None:
    for i in range(1, len(x) - 1):
        out[i - 1] = (x[i - 1] + x[i] + x[i + 1]) / 3


@smooth.register_fake
def _(x: Tensor, out: Tensor) -> None:
    pass


@torch.compile
def smoothed(signal: Tensor) -> Tensor:
    out = signal.new_empty(len(signal) - 2) if "--fixed" in sys.argv else signal[1:-1]
    smooth(signal, out)
    return out


smoothed(torch.rand(100))
