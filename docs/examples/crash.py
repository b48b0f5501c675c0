"""A custom operator that writes far outside of its tensor: the process dies."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


@torch.library.custom_op("mylib::scale_rows", mutates_args=())
def scale_rows(x: Tensor) -> Tensor:
    if len(x) > 16:
        ctypes.memset(x.data_ptr() + (1 << 46), 0, 1)
    return x * 2


@scale_rows.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.compile(dynamic=True)
def model(x: Tensor) -> Tensor:
    hidden = torch.relu(x @ x.T)
    out: Tensor = scale_rows(hidden) @ x
    return out


def main() -> None:
    torch.manual_seed(0)
    for rows in (14, 16, 18):
        model(torch.randn(rows, 32))


if __name__ == "__main__":
    main()
