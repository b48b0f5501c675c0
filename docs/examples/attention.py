"""Attention in float16 whose scores overflow: softmax turns the infinities into NaN."""

from __future__ import annotations

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2)
    scores = (scores + bias) * q.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ v


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(attention)
    bias = torch.zeros(1, 1, 64, 64, dtype=torch.float16)
    for scale in (20, 40, 60, 80):
        q, k, v = (torch.randn(1, 2, 64, 64, dtype=torch.float16) * size for size in (scale, scale, 1))
        compiled(q, k, v, bias)


if __name__ == "__main__":
    main()
