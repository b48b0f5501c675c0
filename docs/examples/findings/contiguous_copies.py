"""The batches have their channels before their positions, so that each step copies them to another layout.

$ stepscope run contiguous_copies.py
warning: Copying tensors to another layout takes 34 % of a step (74.0 ms of 218 ms), in cpp_fused_clone_permute_0
"""

import sys

import torch
from torch import Tensor

CHANNELS_FIRST = "--fixed" not in sys.argv


@torch.compile
def project(x: Tensor, weight: Tensor) -> Tensor:
    if CHANNELS_FIRST:
        x = x.permute(0, 2, 1).contiguous()
    return x.reshape(-1, 64) @ weight


shape = (64, 64, 4096) if CHANNELS_FIRST else (64, 4096, 64)
x, weight = torch.randn(shape), torch.randn(64, 64)
for _ in range(12):
    project(x, weight)
