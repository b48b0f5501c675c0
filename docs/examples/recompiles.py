"""A function that is called with another string and another size each time."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.compile
def normalize(x: Tensor, mode: str) -> Tensor:
    centered = x - x.mean(dim=-1, keepdim=True)
    return centered * len(mode)


def main() -> None:
    for length in range(12):
        normalize(torch.randn(8 + length, 64), "m" * (length + 1))


if __name__ == "__main__":
    main()
