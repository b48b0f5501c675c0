"""The last layer is replaced after the optimizer was created, so that the optimizer still holds the old layer and never
trains the new one.

$ stepscope run missing_gradients.py
warning: 2 of 4 parameters of SGD (missing_gradients.py:23) had no gradient in its first 5 steps and belong to no module
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model[2] = nn.Linear(32, 1)
if "--fixed" in sys.argv:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
compiled = torch.compile(model)
for _ in range(6):
    optimizer.zero_grad()
    compiled(torch.randn(64, 16)).square().mean().backward()
    optimizer.step()
