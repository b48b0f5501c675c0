"""Trains a small model with DistributedDataParallel: ``python -m tests.capture.replica_program WHAT``, under torchrun.

``healthy`` keeps the ranks alike, ``by_hand`` lets the last rank change a bias before the third step, ``around`` calls
``model.module`` from the third step on, so that gradients are no longer averaged, and ``sharded`` gives each rank a
parameter of its own that DistributedDataParallel is told to ignore.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, FIRST_WRONG = 5, 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.hidden(x).tanh())
        return y


def main(what: str) -> None:
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(0)
    model = Net()
    if what == "sharded":
        nn.init.constant_(model.head.bias, rank)
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(model, ["head.bias"])
    replicated = DistributedDataParallel(model)
    compiled = torch.compile(replicated)
    optimizer = torch.optim.SGD(replicated.parameters(), 0.1)
    torch.manual_seed(rank)  # each rank has data of its own
    for step in range(STEPS):
        if what == "by_hand" and step == FIRST_WRONG and rank == last:
            with torch.no_grad():
                model.head.bias.add_(1.0)
        run = torch.compile(model) if what == "around" and step >= FIRST_WRONG else compiled
        loss = run(torch.randn(32, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
