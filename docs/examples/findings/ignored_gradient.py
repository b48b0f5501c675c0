"""The backward of an activation function does not multiply by the gradient of its output.

$ stepscope run ignored_gradient.py
warning: The backward of a torch.autograd.Function (ignored_gradient.py:26) ignores the gradient that it gets: 2 of 4
gradients of the graph do not depend on it
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        if "--fixed" in sys.argv:
            return gradient * 3 * x.square()
        return 3 * x.square()


first, second = nn.Linear(8, 16), nn.Linear(16, 4)


@torch.compile
def model(x: Tensor) -> Tensor:
    cubes: Tensor = Cube.apply(first(x))  # type: ignore[no-untyped-call]
    result: Tensor = second(cubes)
    return result


for _ in range(3):
    torch.autograd.backward(model(torch.randn(32, 8)).square().mean())
