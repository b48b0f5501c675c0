"""The program runs PyTorch's profiler itself, and there can be only one at a time, so that the recorder cannot profile
the steps that it was asked to profile.

$ stepscope run --profile 1:3 not_recorded.py
info: Not recorded: operators of profiled steps (the program runs PyTorch's profiler itself)
"""

import sys
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.profiler import profile


@torch.compile
def model(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


with nullcontext() if "--fixed" in sys.argv else profile():
    for _ in range(5):
        model(torch.randn(8, 16), torch.randn(16, 4))
