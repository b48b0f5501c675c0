"""The learning rate is too high, so that the weights grow until they overflow.

$ stepscope run --level values exploding_values.py
critical: self.2.bias (primals_5) (exploding_values.py:21) grew by a factor of 6.5e+08 per step from step 0 on until it
was no longer finite in step 5
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
