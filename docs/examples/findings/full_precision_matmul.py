"""The matrix products are computed in full float32 precision, although the GPU has TensorFloat-32, which is faster.

$ stepscope run full_precision_matmul.py
warning: Matrix products in full float32 take 99 % of a step (86.0 ms of 87.0 ms), in extern_kernels.mm and 3 other
kernels
"""

import sys

import torch
from torch import nn

if "--fixed" in sys.argv:
    torch.set_float32_matmul_precision("high")

model = nn.Sequential(*(nn.Linear(8192, 8192, bias=False, device="cuda") for _ in range(4)))
compiled = torch.compile(model)
x = torch.randn(8192, 8192, device="cuda")
with torch.no_grad():
    for _ in range(12):
        compiled(x)
        torch.cuda.synchronize()
