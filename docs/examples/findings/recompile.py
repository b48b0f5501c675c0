"""The last batch of the data is smaller than the others, so that the model is compiled again for it.

$ stepscope run recompile.py
info: forward (recompile.py:19) was recompiled in step 3: x.size()[0] changed from 16 to 2
"""

import sys

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


data = TensorDataset(torch.randn(50, 8))
model = torch.compile(Model())
with torch.no_grad():
    for (batch,) in DataLoader(data, batch_size=16, drop_last="--fixed" in sys.argv):
        model(batch)
