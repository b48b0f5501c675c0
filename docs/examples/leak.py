"""A training loop that keeps every activation in a list: memory grows from step to step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

history: list[Tensor] = []


class Encoder(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.widen(x))
        return self.narrow(hidden), hidden


def main() -> None:
    torch.manual_seed(0)
    model = Encoder()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(12):
        out, hidden = compiled(torch.randn(512, 512))
        history.append(hidden.detach())
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
