"""A model that prints, converts a tensor to a number, and branches on data."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.compile
def model(x: Tensor) -> Tensor:
    hidden = torch.sin(x)
    print("mean:", hidden.mean())
    scale = hidden.abs().max().item()
    hidden = hidden / scale
    if hidden.sum() > 0:
        return hidden + 1
    return hidden - 1


def main() -> None:
    torch.manual_seed(0)
    for _ in range(3):
        model(torch.randn(1024, 1024))


if __name__ == "__main__":
    main()
