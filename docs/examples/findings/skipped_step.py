"""Each rank decides by its own loss whether to skip a step, so that the parameters of the ranks differ from then on.

$ stepscope run -m torch.distributed.run --standalone --nproc-per-node 2 skipped_step.py
warning: SGD (skipped_step.py:32) stepped on rank 0, but not on rank 1, in step 4
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 1)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(8):
    x = torch.randn(4, 8)
    if dist.get_rank() == 1 and step == 4:
        x *= 100
    loss = compiled(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    is_spike = (loss.detach() > 100).float()
    if "--fixed" in sys.argv:
        dist.all_reduce(is_spike)
    if is_spike:
        continue
    optimizer.step()
dist.destroy_process_group()
