"""Programs with custom operators that do what their schemas do not say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("stepscope_tests::undeclared", mutates_args=())
def halve(x: Tensor) -> Tensor:
    return x.mul_(0.5).sum(-1)


@halve.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1])


def undeclared() -> Any:
    """Compiled code reads the tensor before the operator changes it, and the float64 run gives it a copy."""

    def run(x: Tensor, weight: Tensor) -> Tensor:
        y = x + 1
        total: Tensor = halve(y).unsqueeze(-1)
        return total + y.sin() @ weight

    return torch.compile(run)(torch.rand(4, 8), torch.rand(8, 8))


@torch.library.custom_op("stepscope_tests::same_memory", mutates_args=())
def same_memory(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy())


@same_memory.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def returned_alias() -> Any:
    """Eager code changes the result of the operator with its input, and the float64 run gives it a copy."""

    def run(x: Tensor, weight: Tensor) -> Tensor:
        y = x @ weight
        same: Tensor = same_memory(y)
        y.mul_(0.5)
        return same.sin() @ weight

    return torch.compile(run)(torch.rand(4, 8), torch.rand(8, 8))
