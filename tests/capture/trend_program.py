"""Trains a small model; the argument says what goes wrong: nothing, a sum in bfloat16 that is too
coarse to move, or all the rest.

python -m tests.capture.trend_program healthy|still|sick
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

STEPS = 10


class Model(nn.Module):
    def __init__(self, bias: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 1)
        nn.init.constant_(self.first.bias, bias)
        self.register_buffer("calls", torch.full((1,), 250.0, dtype=dtype))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        hidden: Tensor = torch.relu(self.first(x))
        return hidden @ self.last.weight.t() + self.last.bias


def begin(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return an activation and an initial state, which one kernel makes."""
    return torch.relu(x), torch.zeros(8, 16)


def track(total: Tensor, x: Tensor) -> None:
    """Add a thousandth of the mean of a batch to a sum."""
    total.add_(x.mean(0).to(total.dtype), alpha=0.001)


def main(what: str) -> None:
    torch.manual_seed(0)
    is_sick = what == "sick"
    model = Model(-50.0 if is_sick else 0.1, torch.bfloat16 if is_sick else torch.float32)
    growing, total = torch.ones(16), torch.full((16,), 4.0, dtype=torch.bfloat16 if what == "still" else None)
    compiled, beginning = torch.compile(model), torch.compile(begin)
    tracking = torch.compile(track)
    scale = torch.compile(lambda x: x * 9.0) if is_sick else torch.compile(lambda x: x * 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        growing = scale(growing)
        x, state = beginning(torch.randn(8, 16))
        tracking(total, x)
        loss = compiled(x + state).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
