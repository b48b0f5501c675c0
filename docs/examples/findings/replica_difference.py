"""The program trains the model inside of the wrapper DistributedDataParallel, so that no gradient is averaged.

$ stepscope run --level values -m torch.distributed.run --standalone --nproc-per-node 2 replica_difference.py
critical: The replicated parameter self.weight (primals_1) (replica_difference.py:22) has different values on 2 ranks
from step 1 on; all ranks had equal values before
"""

import sys

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


dist.init_process_group("gloo")
replicated = DistributedDataParallel(Model())
compiled = torch.compile(replicated if "--fixed" in sys.argv else replicated.module)
optimizer = torch.optim.SGD(replicated.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())  # each rank has data of its own
for _ in range(3):
    optimizer.zero_grad()
    compiled(torch.randn(32, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
