"""The model computes in float16, and the loss is not scaled, so that most of its gradients are smaller than the
smallest normal number of float16.

$ stepscope run zero_gradients.py
warning: The gradients that SGD (zero_gradients.py:32) gets are too small for float16: in its step 19, 17 % of the
elements are zero, and 100 % of the others are below the smallest normal number of float16
"""

import sys
from typing import Any

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", enabled="--fixed" in sys.argv)


@torch.compile
def loss_of(x: torch.Tensor, target: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.float16):
        return nn.functional.mse_loss(model(x).float(), target) / 1000


for _ in range(24):
    x = torch.randn(512, 32)
    optimizer.zero_grad()
    scaler.scale(loss_of(x, 0.1 * x.mean(1, keepdim=True))).backward()
    scaler.step(optimizer)
    scaler.update()
