"""The scheduler is to divide the learning rate by ten after every third epoch, and is stepped after each batch.

$ stepscope run vanished_rate.py
warning: The learning rate of SGD (vanished_rate.py:22) fell from 0.1 to 1e-16, so that the last 21 of 48 training steps
hardly change a parameter
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
for _ in range(6):
    for batch in torch.randn(8, 64, 16):
        optimizer.zero_grad()
        compiled(batch).square().mean().backward()
        optimizer.step()
        if "--fixed" not in sys.argv:
            scheduler.step()
    if "--fixed" in sys.argv:
        scheduler.step()
