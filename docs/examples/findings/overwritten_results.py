"""The model writes each of its results into one buffer and returns this buffer, so that all results in the list are the
last one.

$ stepscope run overwritten_results.py
warning: 5 kept tensors, held by a list of 5 in frames of __main__, share the memory of self.frame (arg0_1), which each
call overwrites (overwritten_results.py:24)
"""

import sys

import torch
from torch import Tensor, nn


class Renderer(nn.Module):
    frame: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.register_buffer("frame", torch.zeros(16, 16))

    def forward(self, x: Tensor) -> Tensor:
        self.frame.copy_(self.layer(x).sigmoid())
        return self.frame


renderer = torch.compile(Renderer())
frames = []
with torch.no_grad():
    for _ in range(10):
        frame = renderer(torch.randn(16, 16))
        frames.append(frame.clone() if "--fixed" in sys.argv else frame)
