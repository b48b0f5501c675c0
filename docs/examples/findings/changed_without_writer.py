"""The operator clamps its input in place without declaring it, so that the rest of the graph computes with other values
than the compiler assumes.

$ stepscope run --level values --verify-before changed_without_writer.py
critical: The custom operator example.clipped_sum changed buf0 without declaring it (changed_without_writer.py:28), in
launch 1 of step 0
"""

import sys

import torch
from torch import Tensor


@torch.library.custom_op("example::clipped_sum", mutates_args=())
def clipped_sum(x: Tensor) -> Tensor:
    clipped = x.clamp(-1, 1) if "--fixed" in sys.argv else x.clamp_(-1, 1)
    return clipped.sum(0)


@clipped_sum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1:])


@torch.compile
def centred(x: Tensor) -> Tensor:
    product = x @ x
    total: Tensor = clipped_sum(product)
    return product - total


torch.manual_seed(0)
centred(torch.randn(16, 16))
