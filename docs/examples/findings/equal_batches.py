"""Every rank shuffles the whole dataset by the same seed, so that all train on the same batches.

$ stepscope run --level values -m torch.distributed.run --standalone --nproc-per-node 2 equal_batches.py
info: Both ranks read the same values of input x (primals_2) (equal_batches.py:22) in each of 6 steps
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


dist.init_process_group("gloo")
torch.manual_seed(0)
data: TensorDataset = TensorDataset(torch.randn(192, 8))
sampler: DistributedSampler[Tensor] | None = DistributedSampler(data) if "--fixed" in sys.argv else None
model = DistributedDataParallel(Model())
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, 32 if sampler is None else 16, sampler=sampler, shuffle=sampler is None)
for (x,) in loader:
    optimizer.zero_grad()
    compiled(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
