"""The model returns predictions of size (64, 1), and the targets have size (64). Their difference is a matrix of size
(64, 64), so that each prediction is pulled to the mean of all targets.

$ stepscope run loss_input.py
warning: The loss (loss_input.py:20) combines each prediction with all targets: predictions of size [64, 1]
broadcast to [64, 64]
"""

import sys

import torch
from torch import Tensor, nn


@torch.compile
def loss_of(x: Tensor, target: Tensor) -> Tensor:
    predicted = model(x)
    if "--fixed" in sys.argv:
        predicted = predicted.squeeze(1)
    loss: Tensor = (predicted - target).square().mean()
    return loss


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(64, 8)
for _ in range(6):
    loss = loss_of(x, 2 * x[:, 0])
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
