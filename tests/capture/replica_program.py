"""Trains a small model with DistributedDataParallel: ``python -m tests.capture.replica_program WHAT``, under torchrun.

``healthy`` keeps the ranks alike, ``by_hand`` lets the last rank change a bias before the third step, ``around`` calls
``model.module`` from the third step on, so that gradients are no longer averaged, and ``sharded`` gives each rank a
parameter of its own that DistributedDataParallel is told to ignore. ``buffers`` lets statistics of a batch norm differ,
and ``two`` trains a second module, of the same class, with another learning rate on the last rank, whose optimizer does
not make the third step in ``skips``. In ``samples``, the last rank makes one more forward pass between two steps.
``averaged`` averages the gradients without DistributedDataParallel, and ``forgotten`` all but those of the last layer;
``two_averaged`` and ``one_forgotten`` do so for two models, the latter with the gradients of one of them only.
Each rank has drawn its parameters from a seed of its own in ``other_seeds``, where gradients are averaged, and in
``apart``, where they are not.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, FIRST_WRONG = 5, 2
TWO_BY_HAND = ("two_averaged", "one_forgotten")
BY_HAND = ("averaged", "forgotten", "other_seeds", "apart", *TWO_BY_HAND)


class Net(nn.Module):
    def __init__(self, results: int = 8) -> None:
        super().__init__()
        self.norm, self.hidden, self.head = nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Linear(16, results)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.hidden(self.norm(x)).tanh())
        return y


def train_by_hand(what: str) -> None:
    torch.manual_seed(dist.get_rank() if what in ("other_seeds", "apart") else 0)
    models = nn.ModuleList([Net(), Net(4)] if what in TWO_BY_HAND else [Net()])
    compiled, optimizer = [torch.compile(one) for one in models], torch.optim.SGD(models.parameters(), 0.1)
    left_out = {"forgotten": "head", "one_forgotten": "1.", "apart": ""}.get(what)
    torch.manual_seed(dist.get_rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.stack([run(torch.randn(32, 8)).square().mean() for run in compiled]).sum().backward()  # type: ignore[no-untyped-call]
        for name, one in models.named_parameters():
            if left_out is None or left_out not in name:
                dist.all_reduce(one.grad)
        optimizer.step()


def main(what: str) -> None:
    dist.init_process_group("gloo")
    if what in BY_HAND:
        train_by_hand(what)
        dist.barrier()  # no rank ends while another one still talks to it
        dist.destroy_process_group()
        return
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(0)
    model = Net()
    if what == "sharded":
        nn.init.constant_(model.head.bias, rank)
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(model, ["head.bias"])
    if what == "samples":
        model.norm = nn.BatchNorm1d(8, track_running_stats=False)  # no buffers, which a forward pass would broadcast
    replicated = DistributedDataParallel(model, broadcast_buffers=what != "buffers")
    compiled, optimizer = [torch.compile(replicated)], torch.optim.SGD(replicated.parameters(), 0.1)
    if what in ("healthy", "two"):
        second = DistributedDataParallel(Net(4))
        compiled.append(torch.compile(second))
        slow = 0.05 if what == "two" and rank == last else 0.1
        optimizer.add_param_group({"params": second.parameters(), "lr": slow})
    torch.manual_seed(rank)  # each rank has data of its own
    for step in range(STEPS):
        if what == "by_hand" and step == FIRST_WRONG and rank == last:
            with torch.no_grad():
                model.head.bias.add_(1.0)
        if what == "around" and step == FIRST_WRONG:
            compiled = [torch.compile(model)]
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        torch.stack([run(x).square().mean() for run in compiled]).sum().backward()  # type: ignore[no-untyped-call]
        if not (what == "skips" and step == FIRST_WRONG and rank == last):
            optimizer.step()
        if what == "samples" and step == FIRST_WRONG and rank == last:
            compiled[0](x)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
