"""One rank reads its data from a slow disk, so that the other waits for it in each step.

$ stepscope run -m torch.distributed.run --standalone --nproc-per-node 2 slow_rank.py
warning: Rank 1 spends 51.6 ms per step between the steps, most of it between the backward pass at slow_rank.py:39 of
the step before and the compiled call at slow_rank.py:39, mostly at slow_rank.py:29, and the other rank spends 1.13 ms:
the difference is 82 % of a step (61.4 ms)
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def read_batch() -> Tensor:
    if dist.get_rank() == 1 and "--fixed" not in sys.argv:
        time.sleep(0.05)  # as a slow disk takes
    return torch.randn(32, 8)


dist.init_process_group("gloo")
model = DistributedDataParallel(Model())
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    compiled(read_batch()).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
