"""The learning rate is too high, so that the weights grow until they overflow.

$ stepscope run --level values exploding_values.py
critical: self.2.bias (primals_5) (exploding_values.py:22) grew from 0.0593 in step 0 to 1.05e+34 in step 4, and was no
longer finite in step 5
"""

import sys

import torch
from torch import nn

LEARNING_RATE = 0.01 if "--fixed" in sys.argv else 100.0

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
x = torch.randn(64, 16)
for _ in range(10):
    optimizer.zero_grad()
    compiled(x).square().mean().backward()
    optimizer.step()
