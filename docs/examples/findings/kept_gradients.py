"""The loop never sets the gradients to zero, so that each step uses the sum of all gradients so far.

$ stepscope run kept_gradients.py
warning: The gradients of SGD (kept_gradients.py:20) are never set to zero and add up from step to step
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    if "--fixed" in sys.argv:
        optimizer.zero_grad()
    compiled(torch.randn(64, 16)).square().mean().backward()
    optimizer.step()
