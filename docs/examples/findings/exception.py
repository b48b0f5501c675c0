"""The loop runs for one step more than there are batches, and an exception ends the program.

$ stepscope run exception.py
warning: The program ended after step 3 with IndexError: index 4 is out of bounds for dimension 0 with size 4
"""

import sys

import torch
from torch import Tensor

STEPS = 4 if "--fixed" in sys.argv else 5


@torch.compile
def model(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


w = torch.randn(16, 4)
batches = torch.randn(4, 8, 16)
for step in range(STEPS):
    model(batches[step], w)
