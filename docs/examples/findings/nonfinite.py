"""The entropy takes the logarithm of probabilities that are 0, and 0 times minus infinity is NaN.

$ stepscope run --level values nonfinite.py
critical: NaN is produced by log (nonfinite.py:18) in step 0
"""

import sys

import torch
from torch import Tensor, nn

SMALLEST = 1e-30 if "--fixed" in sys.argv else 0.0


class Entropy(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        probabilities = logits.softmax(-1)
        logarithms = probabilities.clamp(min=SMALLEST).log()
        return -(probabilities * logarithms).sum(-1)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 4), Entropy())
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, maximize=True)
for _ in range(5):
    optimizer.zero_grad()
    compiled(100 * torch.randn(64, 16)).mean().backward()
    optimizer.step()
