"""The learning rate is so small that the updates of the weights vanish in the rounding of bfloat16.

$ stepscope run lost_update.py
warning: Steps of SGD (lost_update.py:22) change none of 321 elements: bfloat16 rounds their updates away
"""

import sys

import torch
from torch import nn

DTYPE = torch.float32 if "--fixed" in sys.argv else torch.bfloat16

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to(DTYPE)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
x = torch.randn(64, 16, dtype=DTYPE)
for _ in range(10):
    optimizer.zero_grad()
    compiled(x).square().mean().backward()
    optimizer.step()
