"""The evaluation after the first epoch switches the model to eval mode, and nothing switches it back, so that the other
epochs train without dropout.

$ stepscope run left_in_eval.py
warning: forward (left_in_eval.py:21) ran with self.drop in eval mode in 6 training steps, from step 4 to the end, after
an evaluation in step 3
"""

import sys

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.drop(x))
        return result


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    if "--fixed" in sys.argv:
        model.train()
    for batch in torch.randn(3, 64, 16):
        optimizer.zero_grad()
        compiled(batch).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        compiled(torch.randn(64, 16))
