"""The model is wrapped in DistributedDataParallel, but the program calls the wrapped module itself.

$ stepscope run -m torch.distributed.run --standalone --nproc-per-node 2 unaveraged_gradients.py
warning: The DistributedDataParallel of Linear is never called, so that it averages no gradients: the parameters differ
on 2 ranks after 5 steps of SGD (unaveraged_gradients.py:26)
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.compile(nn.Linear(8, 1))
ddp = DistributedDataParallel(model)
called = ddp if "--fixed" in sys.argv else model
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())  # each rank has data of its own
for _ in range(8):
    optimizer.zero_grad()
    loss = (called(torch.randn(4, 8)) - 1).square().mean()
    loss.backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
