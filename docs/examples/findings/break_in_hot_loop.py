"""The model asks a server in the middle of its forward pass, so that each step leaves the compiled code and waits.

$ stepscope run break_in_hot_loop.py
warning: Host work at the graph break in break_in_hot_loop.py:16 takes 97 % of a step (20.7 ms of 21.4 ms): Attempted
to call function marked as skipped
"""

import sys
import time

import torch
from torch import Tensor, nn


def ask_server() -> None:
    time.sleep(0.02)  # as a request over the network takes


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Parameter(torch.randn(8, 16))
        self.output = nn.Parameter(torch.randn(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x @ self.hidden
        if "--fixed" not in sys.argv:
            ask_server()
        return x @ self.output


model = torch.compile(Model())
x = torch.randn(32, 8)
with torch.no_grad():
    for _ in range(10):
        model(x)
