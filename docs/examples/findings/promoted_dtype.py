"""The model is bfloat16, but its table of positions is float32, so that queries, keys and their products are float32.

$ stepscope run promoted_dtype.py
info: matmul (promoted_dtype.py:23) computes in float32, because self.angle is float32 and meets bfloat16
(promoted_dtype.py:22)
"""

import sys

import torch
from torch import Tensor, nn


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(32, 32, dtype=torch.bfloat16), nn.Linear(32, 32, dtype=torch.bfloat16)
        self.angle = torch.linspace(0, 1, 16)[:, None].cos()

    def forward(self, x: Tensor) -> Tensor:
        angle = self.angle.to(x.dtype) if "--fixed" in sys.argv else self.angle
        query, key = self.query(x) * angle, self.key(x) * angle
        return torch.matmul(query, key.transpose(-1, -2))


scores = torch.compile(Scores())
for _ in range(3):
    with torch.no_grad():
        scores(torch.randn(4, 16, 32, dtype=torch.bfloat16))
