"""The function is compiled for two tensors, and later gets two slices of one tensor that overlap.

$ stepscope run overlapping_inputs.py
warning: Inputs x (arg0_1) and y (arg1_1) overlap in step 4, although the graph, which changes the first
(overlapping_inputs.py:16), was compiled for separate inputs
"""

import sys

import torch
from torch import Tensor


@torch.compile
def update(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


a, b = torch.ones(8), torch.ones(8)
whole = torch.ones(12 if "--fixed" not in sys.argv else 16)
for step in range(6):
    if step == 3:
        a, b = whole[:8], whole[-8:]
    update(a, b)
