"""The scheduler is meant to divide the learning rate by 100 but multiplies it by 100, so that the next step throws the
weights far away.

$ stepscope run --level values parameter_jump.py
warning: self.2.weight (primals_4) became 5.7 times as large between step 6 and step 7, after the learning rate of SGD
(parameter_jump.py:24) had risen from 0.01 to 1
"""

import sys

import torch
from torch import nn

GAMMA = 0.01 if "--fixed" in sys.argv else 100.0

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=6, gamma=GAMMA)
for _ in range(8):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    (compiled(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    scheduler.step()
