"""A custom operator that normalizes its input in place and does not declare it."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("mylib::norm", mutates_args=())
def norm(x: Tensor) -> Tensor:
    length: Tensor = x.norm(dim=-1, keepdim=True)
    x.div_(length)  # the declaration says that no argument is mutated
    return length


@norm.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], 1)


@torch.compile
def model(x: Tensor, weights: Tensor) -> Tensor:
    hidden = x @ weights
    out: Tensor = (hidden / norm(hidden)) @ weights
    return out


def main() -> None:
    torch.manual_seed(0)
    weights = torch.randn(64, 64)
    for _ in range(4):
        model(torch.randn(64, 64), weights)


if __name__ == "__main__":
    main()
