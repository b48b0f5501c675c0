"""Activation checkpoints: inside one compiled model, and in eager code around blocks that are compiled."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

ITERATIONS = 5


class Inside(torch.nn.Module):
    """The checkpoints are part of what is compiled; one block drops out, so that its random state is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def main() -> None:
    torch.manual_seed(0)
    inside = Inside()
    around = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.SiLU()) for _ in range(2))
    model = torch.compile(inside)
    blocks = [torch.compile(block) for block in around]
    optimizer = torch.optim.SGD([*inside.parameters(), *around.parameters()], 0.1)
    for _ in range(ITERATIONS):
        x = model(torch.randn(16, 32))
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"LOSS {loss.item():.12f}")
    print(f"ITERATIONS {ITERATIONS}")


if __name__ == "__main__":
    main()
