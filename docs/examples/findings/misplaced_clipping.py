"""The gradients are clipped when the optimizer has already used them.

$ stepscope run misplaced_clipping.py
warning: clip_grad_norm_() (misplaced_clipping.py:25) has no effect: it is called after SGD (misplaced_clipping.py:23)
has stepped, and zero_grad() clears the gradients before the next step
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(10):
    optimizer.zero_grad()
    loss = (compiled(10 * torch.randn(64, 16)) - 5).square().mean()
    loss.backward()
    if "--fixed" in sys.argv:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    if "--fixed" not in sys.argv:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
