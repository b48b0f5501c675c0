"""The layers are kept in a plain list, so that the optimizer never learns of them and trains only the head.

$ stepscope run untrained_parameters.py
warning: 4 parameters in self.layers belong to no optimizer and will not be trained: self.layers is a plain list or
dictionary
"""

import sys

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(16, 16), nn.Linear(16, 16)]
        self.layers = nn.ModuleList(layers) if "--fixed" in sys.argv else layers
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        result: Tensor = self.head(x)
        return result


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    compiled(torch.randn(64, 16)).square().mean().backward()
    optimizer.step()
