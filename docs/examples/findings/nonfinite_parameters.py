"""The square root has no finite gradient at zero, so that the first zero among the distances makes all parameters NaN.

$ stepscope run nonfinite_parameters.py
critical: net.0.weight and 3 other parameters hold NaN after 8 recorded steps of AdamW (nonfinite_parameters.py:27); all
were finite after 4 recorded steps
"""

import sys

import torch
from torch import nn

SMALLEST = 1e-12 if "--fixed" in sys.argv else 0.0

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
compiled = torch.compile(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for step in range(12):
    first, second = torch.randn(64, 16), torch.randn(64, 16)
    if step == 5:
        second[3] = first[3]
    optimizer.zero_grad()
    squares = (compiled(first) - compiled(second)).square().sum(-1)
    loss = (squares + SMALLEST).sqrt().mean()
    loss.backward()
    optimizer.step()
