"""The loop normalizes the same images in place again in each epoch, so that they become smaller and smaller.

$ stepscope run --level values changed_outside.py
warning: Code outside of the graphs multiplies args[0] (primals_3) (changed_outside.py:20) by 0.25 in place between the
calls
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
images = torch.rand(64, 16)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    x = (images - 0.5) / 4 if "--fixed" in sys.argv else images.sub_(0.5).div_(4)
    optimizer.zero_grad()
    compiled(x).square().mean().backward()
    optimizer.step()
