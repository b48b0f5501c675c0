"""Each step makes a new iterator of the loader, so that it trains on the first 32 samples only.

$ stepscope run repeated_batch.py
info: A DataLoader that does not shuffle (repeated_batch.py:26) is begun again in each of 6 or more steps in a row, so
that each of them gets the items of the first of 8 batches
"""

import sys
from collections.abc import Iterator
from itertools import chain, repeat

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

inputs = torch.randn(256, 16)
loader: DataLoader[tuple[Tensor, ...]] = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), 32)
batches: Iterator[tuple[Tensor, ...]] = chain.from_iterable(repeat(loader))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(16):
    if "--fixed" in sys.argv:
        x, y = next(batches)
    else:
        x, y = next(iter(loader))
    optimizer.zero_grad()
    loss: Tensor = nn.functional.mse_loss(compiled(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
