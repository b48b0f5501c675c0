"""The losses of eight micro-batches are added up before the only call of backward(), so that they take the memory of
one large batch.

$ stepscope run summed_losses.py
info: One backward pass (summed_losses.py:27) waits for the forward passes of 8 losses, and what they save is
alive together: 8.4 MB of the peak of 14.7 MB
"""

import sys

import torch
from torch import Tensor, nn

model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    total = torch.zeros(())
    for _ in range(8):
        loss: Tensor = compiled(torch.randn(256, 256)).square().mean() / 8
        if "--fixed" in sys.argv:
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
        total = total + loss
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
