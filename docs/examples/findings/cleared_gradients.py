"""The gradients are set to zero before each of the small batches whose gradients are to be accumulated, so that each
step uses those of the last one alone.

$ stepscope run cleared_gradients.py
info: SGD (cleared_gradients.py:26) uses only the last of 4 backward passes before each step: zero_grad()
(cleared_gradients.py:24) clears the gradients of the others
"""

import sys

import torch
from torch import nn

PARTS = 4

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(7):
    optimizer.zero_grad()
    for _ in range(PARTS):
        if "--fixed" not in sys.argv:
            optimizer.zero_grad()
        (compiled(torch.randn(64, 16)).square().mean() / PARTS).backward()
    optimizer.step()
