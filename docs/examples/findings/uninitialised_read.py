"""The operator does not declare that it changes its argument, so that the compiler leaves it out and the product reads
memory that nothing has written.

$ stepscope run --fresh-cache uninitialised_read.py
critical: matmul (uninitialised_read.py:30) reads uninitialised memory: buf0; example.outer_product
(uninitialised_read.py:29) was left out of the generated code
"""

import sys

import torch
from torch import Tensor

CHANGES = ["out"] if "--fixed" in sys.argv else []


@torch.library.custom_op("example::outer_product", mutates_args=CHANGES)
def outer_product(a: Tensor, out: Tensor) -> None:
    torch.outer(a, a, out=out)


@outer_product.register_fake
def _(a: Tensor, out: Tensor) -> None:
    pass


@torch.compile
def power(a: Tensor) -> Tensor:
    matrix = a.new_empty(a.numel(), a.numel())
    outer_product(a, matrix)
    return matrix @ matrix


power(torch.rand(16))
