"""The loop keeps the hidden activations of every step in a list, so that memory grows from step to step.

$ stepscope run growth.py
warning: Memory grows by 2.1 MB per step: buf0 of graph 0/0 inference (growth.py:15) stays alive after each step and is
held by a list of 6 in history of __main__
"""

import sys

import torch
from torch import Tensor


@torch.compile
def model(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x @ w
    return hidden, hidden @ w.T


history = []
w = torch.randn(256, 1024)
for _ in range(6):
    hidden, output = model(torch.randn(512, 256), w)
    history.append(hidden.mean() if "--fixed" in sys.argv else hidden)
