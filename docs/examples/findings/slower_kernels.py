"""From step 12 on, the times are in nanoseconds instead of seconds, and the sine of such large numbers takes longer.

$ stepscope run slower_kernels.py
warning: From step 12 on, kernels take 9.3 times as long as before: 3.65 ms instead of 392 us per step, and
cpp_fused_add_cos_mul_sin_0 takes 100 % of the additional time
"""

import sys

import torch
from torch import Tensor

UNIT = 1.0 if "--fixed" in sys.argv else 1e9


@torch.compile
def encode(times: Tensor) -> Tensor:
    return torch.sin(times) + torch.sin(times * 1.1) + torch.cos(times * 1.2)


seconds = torch.rand(400_000) * 60
for step in range(24):
    encode(seconds if step < 12 else seconds * UNIT)
