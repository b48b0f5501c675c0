"""The function selects elements by a mask, and only the data decide how many, so that the host has to wait for them.

$ stepscope run synchronizing_call.py
warning: Host work at the graph break in synchronizing_call.py:19 takes 50 % of a step (5.40 ms of 10.9 ms): the host
needs a value that the graph computed
"""

import sys

import torch
from torch import Tensor


@torch.compile
def activity(images: Tensor) -> Tensor:
    mask = images > 0
    if "--fixed" in sys.argv:
        return (images * mask).sum() / mask.sum()
    return images[mask].mean()


images = torch.randn(8, 16, 64, 64)
for _ in range(10):
    activity(images)
