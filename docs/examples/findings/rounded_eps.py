"""The model is trained in float16 with the default eps of Adam, 1e-8, which is zero in that dtype. The second moment of
small gradients is zero as well, and the step divides by it.

$ stepscope run rounded_eps.py
warning: The eps of Adam (rounded_eps.py:27), 1e-08, is zero in float16, the dtype of its parameters
"""

import sys

import torch
from torch import Tensor, nn


@torch.compile
def loss_of(x: Tensor) -> Tensor:
    loss: Tensor = (model(x) - x).square().mean()
    return loss


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).half()
eps = 1e-4 if "--fixed" in sys.argv else 1e-8
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=eps)
for _ in range(3):
    loss = loss_of(torch.randn(16, 32).half())
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
