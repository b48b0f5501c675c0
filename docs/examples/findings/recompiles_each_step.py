"""Each text has a different length, and dynamic=False asks for a graph of its own for each length.

$ stepscope run recompiles_each_step.py
warning: Recompiling forward (recompiles_each_step.py:19) 6 times took 5.95 s of the 9.01 s of this run, each time
because text.size()[0] changed (8, 9, 10, 11, … 14)
"""

import sys

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ParameterList(torch.eye(16) for _ in range(24))

    def forward(self, text: Tensor) -> Tensor:
        for weight in self.layers:
            text = text @ weight
        return text


encoder = torch.compile(Encoder(), dynamic=None if "--fixed" in sys.argv else False)
with torch.no_grad():
    for length in range(8, 15):
        encoder(torch.randn(length, 16))
