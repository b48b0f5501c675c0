"""An operator divides its argument in place although it declares that it changes no argument, so that the next kernel
reads something other than the product that was computed for it.

$ stepscope run --judge first clobbered_input.py
critical: extern_kernels.addmm reads buf0, which is not what extern_kernels.mm wrote, in 1 call
"""

import sys

import torch
from torch import Tensor


@torch.library.custom_op("example::normalize", mutates_args=())
def normalize(x: Tensor) -> Tensor:
    largest = x.abs().max()
    return x / largest if "--fixed" in sys.argv else x.div_(largest).clone()


@normalize.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.compile
def model(x: Tensor, w: Tensor) -> Tensor:
    hidden = x @ w
    normal: Tensor = normalize(hidden)
    return normal + hidden @ w


model(torch.randn(16, 8), torch.randn(8, 8))
