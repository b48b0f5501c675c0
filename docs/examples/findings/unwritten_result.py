"""The operator does not declare that it changes its argument, so that the compiler leaves it out and the function
returns memory that nothing has written.

$ stepscope run --fresh-cache unwritten_result.py
critical: counts is returned although nothing has written it: example.histogram (unwritten_result.py:29), which gets it,
was left out of the generated code
"""

import sys

import torch
from torch import Tensor

CHANGES = ["out"] if "--fixed" in sys.argv else []


@torch.library.custom_op("example::histogram", mutates_args=CHANGES)
def histogram(x: Tensor, out: Tensor) -> None:
    out.copy_(torch.histc(x, out.numel(), min=-1, max=1))


@histogram.register_fake
def _(x: Tensor, out: Tensor) -> None:
    pass


@torch.compile
def counts_of(x: Tensor) -> Tensor:
    counts = x.new_empty(8)
    histogram(x, counts)
    return counts


counts_of(torch.randn(100))
