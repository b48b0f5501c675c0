"""The training step sets the seed, so that the dropout drops the same elements in each step.

$ stepscope run repeated_seed.py
warning: torch.manual_seed(0) (repeated_seed.py:28) sets the same seed in each of 6 or more steps in a row, so that
dropout (repeated_seed.py:22) drops the same elements in each of them
"""

import sys

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 64)
        self.dropout = nn.Dropout(0.5)
        self.last = nn.Parameter(torch.randn(64, 1))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.dropout(self.first(x).relu())
        return hidden @ self.last


def train_step(x: Tensor) -> None:
    if "--fixed" not in sys.argv:
        torch.manual_seed(0)
    optimizer.zero_grad()
    compiled(x).square().mean().backward()
    optimizer.step()


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in torch.randn(10, 32, 16):
    train_step(x)
