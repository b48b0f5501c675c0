"""Checkpointing is told not to restore the random numbers, so that the backward pass recomputes the model with another
dropout mask than the forward pass had.

$ stepscope run --level values other_recomputation.py
critical: The backward pass recomputed buf1, the output of dropout (other_recomputation.py:23), with values that differ
from those of the forward pass: it drew other random numbers
"""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

RESTORES = "--fixed" in sys.argv

torch.manual_seed(0)
model = nn.Sequential(nn.Dropout(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    x = torch.randn(64, 16)
    y = checkpoint(compiled, x, use_reentrant=False, preserve_rng_state=RESTORES)
    optimizer.zero_grad()
    y.square().mean().backward()
    optimizer.step()
