"""The teacher gets the tensors of the student rather than copies of them, so that its moving average is the student.

$ stepscope run shared_parameters.py
warning: Each step of SGD (shared_parameters.py:31) also changes teacher.0.weight and 3 more parameters, which have the
memory of student.0.weight and others that it trains
"""

import sys
from typing import Any

import torch
from torch import nn

torch.manual_seed(0)
student, teacher = (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)) for _ in range(2))
teacher.load_state_dict(student.state_dict(), assign="--fixed" not in sys.argv)
teacher.requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)


@torch.compile
def loss_of(x: torch.Tensor, noisy: torch.Tensor) -> Any:
    return nn.functional.mse_loss(student(noisy), teacher(x))


for _ in range(5):
    optimizer.zero_grad()
    inputs = torch.randn(64, 16)
    loss_of(inputs, inputs + 0.1 * torch.randn(64, 16)).backward()
    optimizer.step()
    with torch.no_grad():
        for average, new in zip(teacher.parameters(), student.parameters(), strict=True):
            average.lerp_(new, 0.1)
