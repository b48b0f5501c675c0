"""The model multiplies hundreds of small matrices one by one, so that calling the kernels takes longer than computing.

$ stepscope run host_bound.py
info: Calling kernels takes 83 % of a step (763 us of 922 us): 298 launches take 1.80 us each
"""

import sys

import torch
from torch import Tensor

FIXED = "--fixed" in sys.argv


@torch.compile
def products(x: Tensor, matrices: Tensor) -> Tensor:
    if FIXED:
        return torch.bmm(x.expand_as(matrices), matrices)
    return torch.stack([x @ matrix for matrix in matrices])


x, matrices = torch.randn(4, 4), torch.randn(300, 4, 4)
for _ in range(12):
    products(x, matrices)
