"""Each step registers one more hook that halves the gradient of a parameter.

$ stepscope run piled_hooks.py
warning: damp (piled_hooks.py:16) is registered as a gradient hook of first.weight in each step, and never
removed, so that it runs 18 times in step 18
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)


def damp(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 0.5


first = nn.Linear(16, 32)
model = nn.Sequential(first, nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    handle = first.weight.register_hook(damp)  # type: ignore[no-untyped-call]
    optimizer.zero_grad()
    loss = compiled(torch.randn(64, 16)).square().mean()
    loss.backward()
    optimizer.step()
    if "--fixed" in sys.argv:
        handle.remove()
