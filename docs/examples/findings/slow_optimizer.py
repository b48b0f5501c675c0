"""The optimizer updates each parameter with a dozen operators of its own, where one fused kernel would do.

$ stepscope run slow_optimizer.py
info: The optimizer AdamW takes 41 % of a step (4.77 ms of 11.5 ms)
"""

import sys

import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(24)))
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), fused="--fixed" in sys.argv)
x = torch.randn(8, 256)
for _ in range(16):
    optimizer.zero_grad()
    compiled(x).square().mean().backward()
    optimizer.step()
