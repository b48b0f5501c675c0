"""The loop scores one row of the table after the other.

$ stepscope run small_calls.py
info: score (small_calls.py:14) is called 1,500 times one after the other at small_calls.py:25, and 68 % of this time
passes outside of its kernels (27.7 us of 40.5 us for a call)
"""

import sys

import torch
from torch import Tensor


@torch.compile
def score(row: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(row @ weight).sum(-1)


rows, weight = torch.randn(1500, 32), torch.randn(32, 32)
scores: list[Tensor] = []
if "--fixed" in sys.argv:
    scores.extend(score(rows, weight))
else:
    for row in rows:
        scores.append(score(row, weight))
print(torch.stack(scores).argmax())
