"""The bias before the activation is so negative that the ReLU gives only zeros, through which no gradient flows.

$ stepscope run --level values dead_activation.py
warning: buf1, the output of relu (dead_activation.py:22), is zero everywhere in every step
"""

import sys

import torch
from torch import nn

BIAS = 0.0 if "--fixed" in sys.argv else -20.0

torch.manual_seed(0)
first = nn.Linear(16, 32)
nn.init.constant_(first.bias, BIAS)
model = nn.Sequential(first, nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    (compiled(torch.randn(64, 16)) - 1).square().mean().backward()
    optimizer.step()
