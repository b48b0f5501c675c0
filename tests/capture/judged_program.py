"""Trains a small model in two steps and prints what it computed; with ``wrong``, the compiler's ReLU is wrong.

python -m tests.capture.judged_program healthy|wrong
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch._inductor import config


def main(what: str) -> None:
    if what == "wrong":
        config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        loss = compiled(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    state = [loss, *model.parameters(), *(one.grad for one in model.parameters() if one.grad is not None)]
    sums = [one.double().sum().item().hex() for one in state]
    sys.stdout.write(f"{sums} {torch.rand(1).item()}\n")


if __name__ == "__main__":
    main(sys.argv[1])
