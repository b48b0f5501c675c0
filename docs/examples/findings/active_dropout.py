"""The model calls F.dropout() without `training`, so that two evaluations of the same input differ.

$ stepscope run active_dropout.py
info: F.dropout() (active_dropout.py:24) also drops values in a graph that computes no gradients, because `training` is
True by default
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x).relu()
        if "--fixed" in sys.argv:
            return F.dropout(hidden, 0.5, training=self.training)
        return F.dropout(hidden, 0.5)


model = Model().eval()
model.compile()
x = torch.randn(4, 16)
with torch.no_grad():
    print("equal" if torch.equal(model(x), model(x)) else "different")
