"""The forward pass prints, which no graph can contain, so that Dynamo splits the model into two graphs.

$ stepscope run graph_break.py
info: Graph break in forward (graph_break.py:19): Failed to trace builtin operator
"""

import sys

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Parameter(torch.randn(8, 16))
        self.output = nn.Parameter(torch.randn(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x @ self.hidden
        if "--fixed" not in sys.argv:
            print("hidden:", x.shape)
        return x @ self.output


model = torch.compile(Model())
x = torch.randn(32, 8)
with torch.no_grad():
    for _ in range(3):
        model(x)
