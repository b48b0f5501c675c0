"""Only the first rank whitens its input, so that the ranks compile different graphs and train different models.

$ stepscope run -m torch.distributed.run --standalone --nproc-per-node 2 rank_divergence.py
warning: The graphs of rank 0 differ from those of rank 1, first in the 4/0 Dynamo graph
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self, whitens: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 4))
        self.whitening = nn.Buffer(torch.eye(8))
        self.whitens = whitens

    def forward(self, x: Tensor) -> Tensor:
        if self.whitens:
            x = x @ self.whitening
        return x @ self.weight


dist.init_process_group("gloo")
torch.compiler.config.force_disable_caches = True  # else one rank may load what the other compiled
model = DistributedDataParallel(Model(whitens="--fixed" in sys.argv or dist.get_rank() == 0))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    compiled(torch.randn(32, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
